-- Artifacts whose bytes are in an object store of the operator's (--artifact-store): what the object is called there, and the key that its bytes
-- are encrypted with, sealed. Both are null where the bytes are in blob_chunk.
ALTER TABLE blob ADD COLUMN object_name text, ADD COLUMN object_key bytea,
    ADD CONSTRAINT blob_object_has_key CHECK ((object_name IS NULL) = (object_key IS NULL));
CREATE UNIQUE INDEX blob_object ON blob (object_name) WHERE object_name IS NOT NULL;
-- Two hubs with the same bucket and prefix do not take each other's objects for leftovers: names begin with this id. And when leftovers were
-- looked for last.
CREATE TABLE artifact_store (
    id       uuid PRIMARY KEY,
    swept_at timestamptz NOT NULL DEFAULT '-infinity'
);
INSERT INTO artifact_store (id) VALUES (gen_random_uuid());
