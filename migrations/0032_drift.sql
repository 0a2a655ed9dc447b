-- Objects that differ from what was applied, and those that did and were corrected.
CREATE TABLE drift (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    applier     uuid        NOT NULL REFERENCES resource (uid) ON DELETE CASCADE,
    cluster_uid uuid        NOT NULL,
    api_group   text        NOT NULL,
    version     text        NOT NULL,
    kind        text        NOT NULL,
    namespace   text        NOT NULL,
    name        text        NOT NULL,
    -- Why it goes on, or went on: reported, contended or failed. NULL where it was corrected at once.
    state       text,
    missing     boolean     NOT NULL,
    managers    text[]      NOT NULL,
    -- Where it differs, with the values as the agent told them.
    fields      jsonb       NOT NULL,
    message     text        NOT NULL DEFAULT '',
    -- How often it was corrected.
    corrections integer     NOT NULL,
    first_seen  timestamptz NOT NULL,
    last_seen   timestamptz NOT NULL,
    -- NULL while it goes on.
    ended_at    timestamptz
);
CREATE UNIQUE INDEX drift_goes_on ON drift (applier, cluster_uid, api_group, kind, namespace, name) WHERE ended_at IS NULL;
CREATE INDEX drift_of_object ON drift (applier, cluster_uid, api_group, kind, namespace, name, last_seen DESC);
CREATE INDEX drift_by_time ON drift (last_seen DESC, id DESC);
