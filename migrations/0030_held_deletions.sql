-- Deletions that wait for a person's word: the newest attempt of their applier found more to delete than it may.
CREATE TABLE held_deletion (
    applier      uuid PRIMARY KEY REFERENCES resource (uid) ON DELETE CASCADE,
    -- What is confirmed: one digest for all parts.
    digest       bytea       NOT NULL,
    -- The digests of what goes together, and of what goes on the hub.
    parts        bytea[]     NOT NULL,
    -- Of the dispatch in which they were found: a word for them is good for no other one.
    dispatch     bytea       NOT NULL,
    total        bigint      NOT NULL,
    since        timestamptz NOT NULL DEFAULT now(),
    confirmed_at timestamptz,
    confirmed_by text
);
