-- What an agent corrected by itself is an attempt too: it applied again what the one before it had applied.
ALTER TABLE reconciliation ADD COLUMN corrects boolean NOT NULL DEFAULT false;

-- Appliers of which nothing is to be corrected before their next dispatch: they are suspended, may not deploy any more, or are gone.
-- The agent is told in each of its sessions. Not bound to the applier's row, which may be gone before the agent is told.
CREATE TABLE resting (
    applier uuid PRIMARY KEY,
    cluster_uid uuid NOT NULL,
    since timestamptz NOT NULL DEFAULT now(),
    sent_in uuid
);
CREATE INDEX resting_of_cluster ON resting (cluster_uid);

-- Appliers whose agent watches all that they applied and sees it stand: when their interval is over, nothing has to be done.
CREATE TABLE tended (
    applier uuid PRIMARY KEY REFERENCES resource (uid) ON DELETE CASCADE,
    cluster_uid uuid NOT NULL,
    -- Until when that was known; none while it is.
    until timestamptz,
    -- It was known until the agent's session ended. The next one may be another process, which tends nothing yet.
    forsaken boolean NOT NULL DEFAULT false
);
CREATE INDEX tended_on ON tended (cluster_uid) WHERE until IS NULL;
