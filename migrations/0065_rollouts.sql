-- How far commits have come: what Alerts that group have told of it, as one status of each commit and environment.
CREATE TABLE rollout (
    alert       uuid        NOT NULL REFERENCES resource (uid) ON DELETE CASCADE,
    -- In hex.
    commit      text        NOT NULL,
    -- Empty where the Alert tells none apart.
    environment text        NOT NULL,
    -- As the source has it.
    revision    text        NOT NULL,
    -- What was told last: how far it had come, when that was, and how many messages there were.
    verdict     text        NOT NULL,
    of_clusters boolean     NOT NULL,
    total       bigint      NOT NULL,
    ready       bigint      NOT NULL,
    failed      bigint      NOT NULL,
    told_at     timestamptz NOT NULL,
    messages    bigint      NOT NULL DEFAULT 1,
    PRIMARY KEY (alert, commit, environment)
);
CREATE INDEX rollout_pending ON rollout (alert) WHERE verdict = 'pending';

-- When the appliers of an Alert were last counted.
CREATE TABLE rollout_count (
    alert      uuid        PRIMARY KEY REFERENCES resource (uid) ON DELETE CASCADE,
    counted_at timestamptz NOT NULL
);

-- The revision that an applier was last tried at, and whether it stays at one, beside it: counting unpacks no object.
ALTER TABLE resource
    ADD COLUMN attempted text GENERATED ALWAYS AS (object #>> '{status,lastAttemptedRevision}') STORED,
    ADD COLUMN pinned boolean NOT NULL GENERATED ALWAYS AS (object #>> '{spec,pin,revision}' IS NOT NULL) STORED;
