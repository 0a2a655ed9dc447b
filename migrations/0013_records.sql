-- Whoever can write the database is not thereby who runs the hub: rows that give somebody a right or an agent something to do
-- bear a MAC (HMAC-SHA256 under a key that is derived from the key file's). Those from before are signed once, by the first
-- start that finds the authorities' keys sealed as they were before (see hub/store/src/adopt.rs).
ALTER TABLE access_token
    ADD COLUMN mac          bytea,
    -- To the hour: when it was used last.
    ADD COLUMN last_used_at timestamptz;
ALTER TABLE join_token ADD COLUMN mac bytea;
ALTER TABLE agent_order ADD COLUMN mac bytea;
ALTER TABLE reconciliation ADD COLUMN mac bytea;
CREATE INDEX join_token_expires ON join_token (expires_at);
CREATE INDEX access_token_expires ON access_token (expires_at) WHERE expires_at IS NOT NULL;

-- The audit log: what was done, refused, and read of Secrets. Each entry bears a MAC; entries are sealed in batches, each of
-- which bears a MAC over the one before, so that what is taken out shows.
ALTER TABLE audit
    ADD COLUMN entry   uuid NOT NULL DEFAULT gen_random_uuid() UNIQUE,
    ADD COLUMN outcome text NOT NULL DEFAULT 'ok' CHECK (outcome IN ('ok', 'refused')),
    ADD COLUMN detail  text NOT NULL DEFAULT '',
    ADD COLUMN mac     bytea,
    ADD COLUMN batch   bigint;
-- What was written before this version, which nobody signed.
UPDATE audit SET batch = 0;
CREATE INDEX audit_at ON audit (at);
CREATE INDEX audit_by_batch ON audit (batch, id);
CREATE INDEX audit_unsealed ON audit (id) WHERE batch IS NULL;
CREATE TABLE audit_batch (
    batch     bigint PRIMARY KEY,
    sealed_at timestamptz NOT NULL,
    entries   bigint      NOT NULL,
    -- Over the entries' MACs, in their order.
    digest    bytea       NOT NULL,
    -- Over all of this and the MAC of the batch before.
    mac       bytea       NOT NULL
);
-- One row: up to which batch entries were dropped because of their age.
CREATE TABLE audit_trimmed (
    one   boolean PRIMARY KEY DEFAULT true CHECK (one),
    batch bigint  NOT NULL,
    mac   bytea   NOT NULL
);

-- What is secret of a past version of a Secret goes when the Secret's data changes or goes.
ALTER TABLE resource_event ADD COLUMN shredded boolean NOT NULL DEFAULT false;
UPDATE resource_event e SET sealed = NULL, shredded = true
WHERE sealed IS NOT NULL
  AND NOT EXISTS (SELECT FROM resource r WHERE r.uid = e.uid AND r.resource_version = e.resource_version);
CREATE INDEX resource_event_sealed ON resource_event (uid) WHERE sealed IS NOT NULL;
