-- What an object refers to, as Kind/namespace/name, each once: none where there is nothing. What that is says the registry of kinds
-- (crates/api/src/references.rs), and it is written with the object. Replicas of versions before do not write it, so it is not
-- added while one lives (`hub/store/src/upgrade.rs`).
ALTER TABLE resource ADD COLUMN refers_to text[];

UPDATE resource SET refers_to = found.keys
FROM (
    SELECT uid, array_agg(DISTINCT key) AS keys
    FROM (
        SELECT uid, spec #>> '{sourceRef,kind}' || '/' || coalesce(spec #>> '{sourceRef,namespace}', namespace) || '/'
                    || (spec #>> '{sourceRef,name}') AS key
        FROM (SELECT uid, kind, namespace, object -> 'spec' AS spec FROM resource) one
        WHERE kind IN ('Kustomization', 'HelmChart')
          AND spec #>> '{sourceRef,kind}' IN ('GitRepository', 'Bucket', 'OCIRepository', 'HelmRepository', 'HelmChart')
        UNION ALL
        SELECT uid, 'Kustomization/' || coalesce(dependency ->> 'namespace', namespace) || '/' || (dependency ->> 'name')
        FROM resource, jsonb_path_query(object, 'lax $.spec.dependsOn[*]') AS dependency
        WHERE kind = 'Kustomization'
        UNION ALL
        SELECT uid, CASE used ->> 'kind' WHEN 'ConfigMap' THEN 'ConfigMap/' ELSE 'Secret/' END
                    || namespace || '/' || (used ->> 'name')
        FROM resource, jsonb_path_query(object, 'lax $.spec.postBuild.substituteFrom[*]') AS used
        WHERE kind = 'Kustomization'
        UNION ALL
        SELECT uid, 'Secret/' || namespace || '/' || (object #>> '{spec,decryption,secretRef,name}')
        FROM resource
        WHERE kind = 'Kustomization'
        UNION ALL
        SELECT uid, 'Secret/' || namespace || '/' || name
        FROM (
            SELECT resource.uid, resource.kind, resource.namespace, secret.name
            FROM resource, unnest(ARRAY[
                object #>> '{spec,secretRef,name}', object #>> '{spec,certSecretRef,name}',
                object #>> '{spec,proxySecretRef,name}', object #>> '{spec,verify,secretRef,name}'
            ]) AS secret (name)
        ) used
        WHERE kind IN ('GitRepository', 'Bucket', 'OCIRepository', 'HelmRepository', 'HelmChart')
        UNION ALL
        SELECT uid, 'GitRepository/' || namespace || '/' || (included #>> '{repository,name}')
        FROM resource, jsonb_path_query(object, 'lax $.spec.include[*]') AS included
        WHERE kind = 'GitRepository'
    ) reference
    WHERE key IS NOT NULL
    GROUP BY uid
) found
WHERE resource.uid = found.uid;

-- Without a list of pending entries, which each search would read.
CREATE INDEX resource_refers_to ON resource USING gin (refers_to) WITH (fastupdate = off) WHERE refers_to IS NOT NULL;
DROP INDEX resource_source_ref, resource_depends_on;
