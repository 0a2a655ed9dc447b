-- Failures with one cause, which an Alert that groups tells as one thing.
CREATE TABLE incident (
    id         uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    -- In the order of which they were opened, and are told.
    number     bigint      GENERATED ALWAYS AS IDENTITY,
    alert      uuid        NOT NULL REFERENCES resource (uid) ON DELETE CASCADE,
    -- What its failures have in common.
    cause      bytea       NOT NULL,
    -- The first failure, as the Alert tells it.
    first      jsonb       NOT NULL,
    opened_at  timestamptz NOT NULL,
    -- When it was last told, and how many objects had failed by then.
    told_at    timestamptz,
    told       bigint      NOT NULL DEFAULT 0,
    -- What the Provider's service calls the first message, where more can be told there.
    thread     text,
    -- When the last object was well again; none while one fails.
    well_since timestamptz,
    -- When it is looked at again; none once it is over.
    look_at    timestamptz,
    ended_at   timestamptz
);
CREATE UNIQUE INDEX incident_open ON incident (alert, cause) WHERE ended_at IS NULL;
CREATE INDEX incident_due ON incident (alert, look_at) WHERE ended_at IS NULL;
CREATE INDEX incident_ended ON incident (ended_at) WHERE ended_at IS NOT NULL;

-- The objects that fail for an incident's cause, or failed.
CREATE TABLE incident_member (
    incident  uuid    NOT NULL REFERENCES incident (id) ON DELETE CASCADE,
    api_group text    NOT NULL,
    kind      text    NOT NULL,
    namespace text    NOT NULL,
    name      text    NOT NULL,
    -- The condition that says that it fails.
    condition text    NOT NULL,
    -- The cluster that it is about, if it is about one.
    cluster   text,
    fails     boolean NOT NULL,
    -- It does not fail for this cause any more, but for another one.
    elsewhere boolean NOT NULL DEFAULT false,
    PRIMARY KEY (incident, kind, namespace, name)
);
CREATE INDEX incident_member_failing ON incident_member (kind, namespace, name) WHERE fails;

-- Messages of incidents are numbered apart from news.
CREATE SEQUENCE incident_message;
