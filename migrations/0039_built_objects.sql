-- What builds hold, and what of an inventory they do not: asked in several places.

-- The objects of builds. Where a build names no namespace, an object may be in the default one; an object of a kind without namespaces is in
-- none, whatever the build says.
CREATE FUNCTION built_objects(builds bytea[], default_namespace text)
RETURNS TABLE (g text, k text, ns text, n text) LANGUAGE sql STABLE AS $$
    SELECT DISTINCT coalesce(o.g, ''), o.k, place.ns, o.n
    FROM build_labels b, jsonb_to_recordset(b.objects) AS o (g text, k text, ns text, n text),
         LATERAL (VALUES (coalesce(o.ns, '')), (''), (coalesce(nullif(o.ns, ''), default_namespace))) AS place (ns)
    WHERE b.build_digest = ANY(builds)
$$;

-- The kinds of which a build has objects whose names are not known before variables are substituted; `any_kind` where the kind itself
-- is not.
CREATE FUNCTION built_later(builds bytea[])
RETURNS TABLE (g text, k text, any_kind boolean) LANGUAGE sql STABLE AS $$
    SELECT DISTINCT coalesce(o.g, ''), o.k, coalesce(o.g, '') LIKE '%$%' OR o.k LIKE '%$%'
    FROM build_labels b, jsonb_to_recordset(b.objects) AS o (g text, k text, ns text, n text)
    WHERE b.build_digest = ANY(builds)
      AND (o.n LIKE '%$%' OR coalesce(o.ns, '') LIKE '%$%' OR coalesce(o.g, '') LIKE '%$%' OR o.k LIKE '%$%')
$$;

-- What an applier owns on a cluster and builds do not hold, as far as that is known before variables are substituted, where they are.
-- Without builds: all that it owns.
CREATE FUNCTION left_out(owner uuid, cluster uuid, builds bytea[], default_namespace text, substituted boolean)
RETURNS TABLE (g text, k text, ns text, n text) LANGUAGE sql STABLE AS $$
    WITH built AS MATERIALIZED (SELECT * FROM built_objects(builds, default_namespace)),
         later AS MATERIALIZED (SELECT * FROM built_later(builds) WHERE substituted)
    SELECT i.api_group, i.kind, i.namespace, i.name FROM inventory i
    WHERE i.applier = owner AND i.cluster_uid = cluster
      AND (builds IS NULL
           OR NOT EXISTS (SELECT FROM built b
                          WHERE (b.g, b.k, b.ns, b.n) = (i.api_group, i.kind, i.namespace, i.name))
              AND NOT EXISTS (SELECT FROM later l WHERE l.any_kind OR (l.g, l.k) = (i.api_group, i.kind)))
$$;
