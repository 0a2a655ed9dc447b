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

-- Whether an object that an Alert told of fails still, by how it is now: it is there, its condition is not met, and the Alert listens to it.
CREATE FUNCTION still_fails(of_alert uuid, of_group text, of_kind text, of_namespace text, of_name text, of_condition text)
RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM resource WHERE api_group = of_group AND kind = of_kind AND namespace = of_namespace AND name = of_name
                   AND NOT coalesce(object #> '{status,conditions}' @> jsonb_build_array(
                           jsonb_build_object('type', of_condition, 'status', 'True')), false))
       AND EXISTS (SELECT FROM alert_source AS source WHERE source.alert = of_alert AND source.kind = of_kind
                   AND source.namespace IN (of_namespace, '*') AND source.name IN (of_name, '*'))
$$;
