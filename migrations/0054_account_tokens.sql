-- The keys by which the hub signs tokens of service accounts. What counts of a row is sealed in it: the key itself, its number, when it
-- was made and from when on it signs. A key is superseded by the one of the next number, and goes once no token of it can be good.
CREATE TABLE account_key (
    number     bigint PRIMARY KEY CHECK (number > 0),
    -- The name that its tokens say: the thumbprint of its public half.
    id         text        NOT NULL UNIQUE,
    key_sealed bytea       NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- A token of a version that made tokens without an end has one since a start of this version, and its uses are warned about.
ALTER TABLE access_token ADD COLUMN had_no_end boolean NOT NULL DEFAULT false;
