-- Failures that end without news of that: what was heard of them last, and why they count as over. And deliveries under a clock that is put back, and news
-- that says the same of many objects.

-- When something was last heard of an object, and why it counts as over although nobody said that it is well: see `failure_over`.
ALTER TABLE incident_member ADD COLUMN heard_at timestamptz NOT NULL DEFAULT now(), ADD COLUMN lapsed text;
-- How many objects of it lapsed since it was last summed up.
ALTER TABLE gathered ADD COLUMN heard_at timestamptz NOT NULL DEFAULT now(), ADD COLUMN lapsed bigint NOT NULL DEFAULT 0;
-- When the failure was last told: of what a cluster's Flux tells, nothing else says when to forget it.
ALTER TABLE alert_failing ADD COLUMN told_at timestamptz NOT NULL DEFAULT now();
-- When the last attempt ended: where that is to come, the clock was put back, and when the next one is due says nothing.
ALTER TABLE delivery ADD COLUMN tried_at timestamptz;

-- Why an object that an Alert told of does not fail any more, by how it is now; null while it fails. It is `well`, or it is `gone`, or its Cluster is;
-- the Alert does not listen to it any more (`left`); it is `suspended`, so that nobody tries it and nobody will tell; its health is not checked any
-- more (`unchecked`); or it is on a cluster where the hub does not see how it is, and nothing was heard of it since then (`unheard`). `still_fails` stays for replicas of the version before.
CREATE FUNCTION failure_over(of_alert uuid, of_group text, of_kind text, of_namespace text, of_name text, of_condition text,
                             heard_at timestamptz, heard_since timestamptz)
RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN strpos(of_namespace, '/') > 0 THEN
        CASE WHEN NOT EXISTS (SELECT FROM resource WHERE api_group = 'fleet.roadstead.dev' AND kind = 'Cluster' AND namespace = ''
                              AND name = split_part(of_namespace, '/', 1)) THEN 'gone'
             WHEN NOT EXISTS (SELECT FROM alert_relayed_source AS source WHERE source.alert = of_alert AND source.kind = of_kind
                              AND source.cluster IN (split_part(of_namespace, '/', 1), '*')
                              AND source.namespace IN (split_part(of_namespace, '/', 2), '*') AND source.name IN (of_name, '*')) THEN 'left'
             WHEN heard_at < heard_since THEN 'unheard' END
    ELSE
        nullif(coalesce((
            SELECT CASE WHEN object #> '{status,conditions}' @> jsonb_build_array(
                                 jsonb_build_object('type', of_condition, 'status', 'True')) THEN 'well'
                        WHEN NOT EXISTS (SELECT FROM alert_source AS source WHERE source.alert = of_alert AND source.kind = of_kind
                                         AND source.namespace IN (of_namespace, '*') AND source.name IN (of_name, '*')) THEN 'left'
                        -- How what is applied fares is told of what is suspended, too, as long as that is asked for and somebody sees it.
                        WHEN of_condition = 'Ready' THEN CASE WHEN object #>> '{spec,suspend}' = 'true' THEN 'suspended' ELSE '' END
                        WHEN coalesce(object #> '{status,conditions}', '[]') @> jsonb_build_array(jsonb_build_object('type', of_condition))
                             IS NOT TRUE THEN 'unchecked'
                        WHEN cluster_ref IS NOT NULL AND NOT EXISTS (
                            SELECT FROM resource AS cluster WHERE cluster.api_group = 'fleet.roadstead.dev' AND cluster.kind = 'Cluster'
                            AND cluster.namespace = '' AND cluster.name = resource.cluster_ref) THEN 'gone'
                        ELSE '' END
            FROM resource WHERE api_group = of_group AND kind = of_kind AND namespace = of_namespace AND name = of_name), 'gone'), '')
    END
$$;

-- News that does not tell of failures and says the same of many objects: gathered for a while, and told as one message.
CREATE TABLE news_group (
    alert     uuid        NOT NULL REFERENCES resource (uid) ON DELETE CASCADE,
    -- What it has in common.
    cause     bytea       NOT NULL,
    -- The first of it, as the Alert tells it; of which news that is, what the same news of its object has in common, and what it comes of.
    first     jsonb       NOT NULL,
    news      bigint      NOT NULL,
    key       bytea       NOT NULL,
    trace     text,
    opened_at timestamptz NOT NULL,
    due_at    timestamptz NOT NULL,
    PRIMARY KEY (alert, cause)
);
CREATE TABLE news_group_object (
    alert     uuid  NOT NULL,
    cause     bytea NOT NULL,
    kind      text  NOT NULL,
    namespace text  NOT NULL,
    name      text  NOT NULL,
    cluster   text,
    PRIMARY KEY (alert, cause, kind, namespace, name),
    FOREIGN KEY (alert, cause) REFERENCES news_group (alert, cause) ON DELETE CASCADE
);
