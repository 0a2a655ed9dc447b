-- An attempt and an inventory are those of an applier: a Kustomization, or an object of another kind that deploys. Statements of
-- replicas of versions before name the columns as they were, so this is not done while one lives (`hub/store/src/upgrade.rs`).
ALTER TABLE inventory RENAME COLUMN kustomization TO applier;
ALTER TABLE reconciliation RENAME COLUMN kustomization TO applier;
UPDATE schedule SET kind = 'applier' WHERE kind = 'kustomization';

-- A build may have several groups. What is remembered under the older keys would never be found again.
DELETE FROM build_cache;
ALTER TABLE build_cache DROP COLUMN build_digest,
    ADD COLUMN digests bytea[] NOT NULL,
    ADD COLUMN labels  text[]  NOT NULL;

-- An attempt may read what a render needs of its cluster: what it found is sealed.
ALTER TABLE reconciliation ADD COLUMN reads boolean NOT NULL DEFAULT false,
    ADD COLUMN facts bytea,
    -- The digest of what was dispatched; and, of an attempt that sent nothing since the cluster had all of it, when that was so.
    ADD COLUMN dispatch_digest bytea,
    ADD COLUMN checked_at timestamptz,
    -- The objects of the hub that were rendered, by Kind/namespace/name: the uid and the resource version of each.
    ADD COLUMN rendered_by jsonb;
CREATE INDEX reconciliation_rendered_by ON reconciliation USING gin (rendered_by) WITH (fastupdate = off)
    WHERE rendered_by IS NOT NULL;
