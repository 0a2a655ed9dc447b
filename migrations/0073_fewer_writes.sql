-- Where any index reads `object`, if only of a few rows, each update of any object writes all of the table's indexes: Postgres compares the
-- columns that indexes read, and not the values that they derive. So no index reads `object` any more, and pages keep room for the next
-- version of their rows.
DROP INDEX resource_event_last;
DROP INDEX resource_pinned;
ALTER TABLE resource SET (fillfactor = 75);
-- An applier is pinned by its annotation, too.
ALTER TABLE resource
    ADD COLUMN last_seen text GENERATED ALWAYS AS (CASE WHEN kind = 'Event' THEN object ->> 'lastTimestamp' END) STORED,
    DROP COLUMN pinned,
    ADD COLUMN pinned boolean NOT NULL GENERATED ALWAYS AS
        (coalesce(object #>> '{spec,pin,revision}', object #>> '{metadata,annotations,fleet.roadstead.dev/pin}') IS NOT NULL) STORED;
CREATE INDEX resource_event_last ON resource (last_seen) WHERE kind = 'Event';
CREATE INDEX resource_pinned ON resource (uid) WHERE pinned;

-- The length of a change's `object` as a text; NULL in rows that an older version wrote.
ALTER TABLE resource_event ADD COLUMN size integer;

-- These functions do what they did, but each connection plans them once, and by indexes even before the tables have statistics. As SQL functions
-- they became part of the statements that call them, which took longer to plan than to run, and were planned each time.
CREATE OR REPLACE FUNCTION built_objects(builds bytea[], default_namespace text)
RETURNS TABLE (g text, k text, ns text, n text) LANGUAGE plpgsql STABLE ROWS 10 SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT DISTINCT coalesce(o.g, ''), o.k, place.ns, o.n
    FROM build_labels b, jsonb_to_recordset(b.objects) AS o (g text, k text, ns text, n text),
         LATERAL (VALUES (coalesce(o.ns, '')), (''), (coalesce(nullif(o.ns, ''), default_namespace))) AS place (ns)
    WHERE b.build_digest = ANY(builds);
END
$$;

CREATE OR REPLACE FUNCTION built_later(builds bytea[])
RETURNS TABLE (g text, k text, any_kind boolean) LANGUAGE plpgsql STABLE ROWS 10 SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT DISTINCT coalesce(o.g, ''), o.k, coalesce(o.g, '') LIKE '%$%' OR o.k LIKE '%$%'
    FROM build_labels b, jsonb_to_recordset(b.objects) AS o (g text, k text, ns text, n text)
    WHERE b.build_digest = ANY(builds)
      AND (o.n LIKE '%$%' OR coalesce(o.ns, '') LIKE '%$%' OR coalesce(o.g, '') LIKE '%$%' OR o.k LIKE '%$%');
END
$$;

CREATE OR REPLACE FUNCTION left_out(owner uuid, cluster uuid, builds bytea[], default_namespace text, substituted boolean)
RETURNS TABLE (g text, k text, ns text, n text) LANGUAGE plpgsql STABLE ROWS 10 SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH built AS MATERIALIZED (SELECT * FROM built_objects(builds, default_namespace)),
         later AS MATERIALIZED (SELECT * FROM built_later(builds) WHERE substituted)
    SELECT i.api_group, i.kind, i.namespace, i.name FROM inventory i
    WHERE i.applier = owner AND i.cluster_uid = cluster
      AND (builds IS NULL
           OR NOT EXISTS (SELECT FROM built b
                          WHERE (b.g, b.k, b.ns, b.n) = (i.api_group, i.kind, i.namespace, i.name))
              AND NOT EXISTS (SELECT FROM later l WHERE l.any_kind OR (l.g, l.k) = (i.api_group, i.kind)));
END
$$;

CREATE OR REPLACE FUNCTION is_past(of uuid, of_attempt bigint, of_epoch bigint) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN of_epoch < (SELECT epoch FROM hub_state)
           OR EXISTS (SELECT FROM lost_attempt l WHERE l.applier = of AND (l.epoch, l.attempt) > (of_epoch, of_attempt));
END
$$;
