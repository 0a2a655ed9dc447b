-- Events that controllers of Flux in clusters tell, which their agents relay: the Alerts that listen to them, and those that wait to be sorted.
-- They are apart from the hub's own, so that a replica of an older version takes neither for those.
CREATE TABLE alert_relayed_source (
    alert       uuid    NOT NULL REFERENCES resource (uid) ON DELETE CASCADE,
    -- The Cluster; `*` for all.
    cluster     text    NOT NULL,
    kind        text    NOT NULL,
    namespace   text    NOT NULL,
    name        text    NOT NULL,
    only_errors boolean NOT NULL,
    PRIMARY KEY (alert, cluster, kind, namespace, name)
);
CREATE INDEX alert_relayed_source_of ON alert_relayed_source (kind, cluster);

CREATE TABLE relayed_news (
    -- Of the same numbers as other news: a delivery names the one that it is of.
    id        bigint PRIMARY KEY DEFAULT nextval(pg_get_serial_sequence('news', 'id')),
    cluster   text   NOT NULL,
    event     jsonb  NOT NULL,
    condition text
);
CREATE INDEX relayed_news_of ON relayed_news (cluster, id);

-- What fails on a cluster and is not the hub's own stands in a namespace `CLUSTER/NAMESPACE`. The hub does not see how it is: it fails until its
-- controller tells that it is well, or the Cluster is gone, or the Alert does not listen to it any more.
CREATE OR REPLACE FUNCTION still_fails(of_alert uuid, of_group text, of_kind text, of_namespace text, of_name text, of_condition text)
RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN strpos(of_namespace, '/') > 0 THEN
        EXISTS (SELECT FROM resource WHERE api_group = 'fleet.roadstead.dev' AND kind = 'Cluster' AND namespace = ''
                AND name = split_part(of_namespace, '/', 1))
        AND EXISTS (SELECT FROM alert_relayed_source AS source WHERE source.alert = of_alert AND source.kind = of_kind
                    AND source.cluster IN (split_part(of_namespace, '/', 1), '*')
                    AND source.namespace IN (split_part(of_namespace, '/', 2), '*') AND source.name IN (of_name, '*'))
    ELSE
        EXISTS (SELECT FROM resource WHERE api_group = of_group AND kind = of_kind AND namespace = of_namespace AND name = of_name
                AND NOT coalesce(object #> '{status,conditions}' @> jsonb_build_array(
                        jsonb_build_object('type', of_condition, 'status', 'True')), false))
        AND EXISTS (SELECT FROM alert_source AS source WHERE source.alert = of_alert AND source.kind = of_kind
                    AND source.namespace IN (of_namespace, '*') AND source.name IN (of_name, '*'))
    END
$$;
