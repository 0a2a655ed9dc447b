-- A Bucket refers to the Secrets of its token service too, and Buckets and OCIRepositories that an older version stored are fetched.
UPDATE resource SET refers_to = (
    SELECT array_agg(DISTINCT key)
    FROM unnest(coalesce(refers_to, '{}') || ARRAY[
        'Secret/' || namespace || '/' || (object #>> '{spec,sts,secretRef,name}'),
        'Secret/' || namespace || '/' || (object #>> '{spec,sts,certSecretRef,name}')
    ]) AS key
    WHERE key IS NOT NULL
)
WHERE kind = 'Bucket'
  AND (object #>> '{spec,sts,secretRef,name}' IS NOT NULL OR object #>> '{spec,sts,certSecretRef,name}' IS NOT NULL);

INSERT INTO schedule (uid, kind, due_at)
SELECT uid, 'source', now() FROM resource WHERE kind IN ('Bucket', 'OCIRepository')
ON CONFLICT DO NOTHING;
