-- What is not tried again for now because it ended a worker process, or the hub's own: by the digest of what it was tried with.
-- All replicas know of it, so that they do not fail one after the other.
CREATE TABLE set_aside (
    inputs bytea PRIMARY KEY CHECK (length(inputs) = 32),
    -- Why, for people.
    why    text        NOT NULL,
    since  timestamptz NOT NULL,
    until  timestamptz NOT NULL
);
CREATE INDEX set_aside_until ON set_aside (until);

-- How often in a row the replica was gone that had claimed this look, before it gave the claim back.
ALTER TABLE schedule ADD COLUMN lost integer NOT NULL DEFAULT 0;
CREATE INDEX schedule_lost ON schedule (kind, due_at) WHERE lost > 0;
