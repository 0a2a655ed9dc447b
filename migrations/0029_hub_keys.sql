-- Which keys of the key file values of this database are sealed with, and what must outlive a key that was taken out of the file.
CREATE TABLE hub_key (
    -- Eight hexadecimal digits, derived from the key.
    id           text PRIMARY KEY CHECK (id ~ '^[0-9a-f]{8}$'),
    -- The key that the database began with. What it sealed says no id, as versions before this table sealed.
    base         boolean     NOT NULL,
    -- The keys derived from it by which tokens and rows are checked, and up to which batch of the audit log; sealed.
    derived      bytea       NOT NULL,
    in_use_since timestamptz NOT NULL DEFAULT now(),
    -- Since then nothing is sealed with it, and the key file does not need it.
    retired_at   timestamptz
);
CREATE UNIQUE INDEX hub_key_base ON hub_key (base) WHERE base;
-- The ids of the keys that a replica has; the first is what it seals with. None: a version before this column.
ALTER TABLE hub_replica ADD COLUMN keys text[], ADD COLUMN keys_at timestamptz;
