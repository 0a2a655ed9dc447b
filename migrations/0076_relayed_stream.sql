-- What Flux's controllers in clusters told lately, whoever listens: for the stream of events. One row for what is told again and again.
CREATE TABLE relayed_event (
    uid         uuid   PRIMARY KEY DEFAULT gen_random_uuid(),
    -- A digest of all that makes it the same as another one: the Cluster, the object, type, reason and message.
    key         bytea  NOT NULL UNIQUE,
    -- The Cluster, with which it goes: another one of the same name may be for others to see.
    cluster_uid uuid   NOT NULL REFERENCES resource (uid) ON DELETE CASCADE,
    cluster     text   NOT NULL,
    kind        text   NOT NULL,
    namespace   text   NOT NULL,
    name        text   NOT NULL,
    -- As an Event's: `Normal` or `Warning`.
    type        text   NOT NULL,
    reason      text   NOT NULL,
    message     text   NOT NULL,
    -- When the hub was told, in the form that an Event's times have.
    first_seen  text   NOT NULL,
    last_seen   text   NOT NULL,
    count       bigint NOT NULL
);
CREATE INDEX relayed_event_last ON relayed_event (last_seen, uid);
CREATE INDEX relayed_event_of ON relayed_event (cluster_uid, last_seen, uid);
