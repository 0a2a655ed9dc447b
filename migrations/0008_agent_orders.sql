-- What a cluster's agent was told to do with itself last: to run another image, or (no image) to remove itself.
CREATE TABLE agent_order (
    cluster_uid uuid PRIMARY KEY REFERENCES resource (uid) ON DELETE CASCADE,
    image       text,
    -- The value of the annotation that asked for it.
    request     text,
    given_at    timestamptz NOT NULL,
    -- The session in which it was sent last.
    sent_in     uuid,
    state       text        NOT NULL CHECK (state IN ('told', 'under_way', 'failed')),
    message     text        NOT NULL DEFAULT ''
);
-- The image that the agent of the session runs, where it knows.
ALTER TABLE agent_session ADD COLUMN image text;
