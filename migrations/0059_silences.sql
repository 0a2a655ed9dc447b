-- News of objects that Alerts do not send now: it is summed up when a Silence ends, and at the times of a Provider's digest.
CREATE TABLE gathered (
    alert     uuid        NOT NULL REFERENCES resource (uid) ON DELETE CASCADE,
    -- The Silence of the Alert's namespace that keeps it back; empty for a digest.
    silence   text        NOT NULL,
    -- The object; all empty for the count of what is about no object that failed.
    api_group text        NOT NULL,
    kind      text        NOT NULL,
    namespace text        NOT NULL,
    name      text        NOT NULL,
    -- Its last failure: the condition that says so, the cluster that it is about, the object's labels, and the event.
    condition text,
    cluster   text,
    labels    jsonb,
    news      bigint,
    event     jsonb,
    fails     boolean     NOT NULL DEFAULT false,
    -- How often that was since it was last summed up.
    failed    bigint      NOT NULL DEFAULT 0,
    recovered bigint      NOT NULL DEFAULT 0,
    drifted   bigint      NOT NULL DEFAULT 0,
    others    bigint      NOT NULL DEFAULT 0,
    since     timestamptz NOT NULL,
    PRIMARY KEY (alert, silence, kind, namespace, name)
);

-- Providers that tell digests: up to when they did.
CREATE TABLE digest (
    provider uuid        PRIMARY KEY REFERENCES resource (uid) ON DELETE CASCADE,
    told_at  timestamptz NOT NULL
);
