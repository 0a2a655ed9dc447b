-- In which form a dispatch is stored. A replica passes over those of a form that it does not know: they wait for a newer one.
-- Replicas of versions before this column do not, so it is not added while one lives (`hub/store/src/upgrade.rs`).
ALTER TABLE reconciliation ADD COLUMN dispatch_format smallint NOT NULL DEFAULT 1;

-- What a cluster's agent can do that one of the first version cannot, as it said in its Hello.
ALTER TABLE agent_session ADD COLUMN capabilities text[] NOT NULL DEFAULT '{}';
