-- ExternalArtifacts are served: Kustomizations that name one as their source, which an older version stored, refer to it.
UPDATE resource SET refers_to = array_append(coalesce(refers_to, '{}'),
    'ExternalArtifact/' || coalesce(object #>> '{spec,sourceRef,namespace}', namespace) || '/' || (object #>> '{spec,sourceRef,name}'))
WHERE kind = 'Kustomization'
  AND object #>> '{spec,sourceRef,kind}' = 'ExternalArtifact'
  AND object #>> '{spec,sourceRef,name}' IS NOT NULL;

INSERT INTO schedule (uid, kind, due_at)
SELECT uid, 'applier', now() FROM resource
WHERE kind = 'Kustomization' AND object #>> '{spec,sourceRef,kind}' = 'ExternalArtifact'
ON CONFLICT DO NOTHING;
