-- What became of what was sent, of each Alert and each Provider. It is counted as it happens, since deliveries are forgotten after a while.
-- Who is deleted goes from here with old deliveries: a reference would fail a count that meets a deletion.
CREATE TABLE delivery_count (
    uid       uuid        PRIMARY KEY,
    sent      bigint      NOT NULL,
    failed    bigint      NOT NULL,
    sent_at   timestamptz,
    -- The last attempt that came to nothing, and why.
    failed_at timestamptz,
    error     text        NOT NULL,
    -- Whether the object's status says something else, and when it was last told.
    is_news   boolean     NOT NULL DEFAULT true,
    told_at   timestamptz
);
CREATE INDEX delivery_count_news ON delivery_count (told_at NULLS FIRST) WHERE is_news;
