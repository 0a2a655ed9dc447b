-- Which artifact a source had at a revision, for appliers that are pinned to one while the source moves on. `revision` is the hash
-- of its content (of Git, the commit), or the whole revision where it has none. A row without a digest is a request, with the
-- pin's own text in `asked`; `failure` says why it could not be fetched. A row goes with the artifact that it names.
CREATE TABLE source_artifact (
    source   uuid        NOT NULL REFERENCES resource (uid) ON DELETE CASCADE,
    revision text        NOT NULL,
    asked    text        NOT NULL,
    digest   bytea       REFERENCES blob (digest) ON DELETE CASCADE,
    failure  text,
    since    timestamptz NOT NULL,
    PRIMARY KEY (source, revision)
);
CREATE INDEX source_artifact_digest ON source_artifact (digest);
INSERT INTO source_artifact (source, revision, asked, digest, since)
    SELECT uid, regexp_replace(object #>> '{status,artifact,revision}', '^.*:', ''), object #>> '{status,artifact,revision}',
           digest, now()
    FROM resource JOIN blob ON 'sha256:' || encode(digest, 'hex') = object #>> '{status,artifact,digest}'
    WHERE object #>> '{status,artifact,revision}' LIKE '%:%';
