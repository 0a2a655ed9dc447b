-- Remote resources of kustomizations (--remote-bases): what each held when it was last checked, for all that name it.
CREATE TABLE remote_resource (
    -- A repository at a reference, or a URL.
    key text PRIMARY KEY,
    -- When the newest check of it began. One that began before says nothing new.
    began_at timestamptz NOT NULL,
    -- When it ended: from then on what it told is known.
    ended_at timestamptz NOT NULL,
    -- What came of that, where it failed.
    failure text,
    -- What it held when it was last had: an artifact, or a file as it is. Null where it never was.
    digest bytea,
    is_file boolean NOT NULL DEFAULT false,
    -- By which the next check asks whether it is still the same.
    revision text NOT NULL DEFAULT '',
    -- Bytes of its files.
    bytes bigint NOT NULL DEFAULT 0
);
