-- References to objects of other namespaces that an object may have, since whoever wrote them had the right to get what they name. As
-- keys: Kind/namespace/name.
CREATE TABLE granted_reference (
    uid uuid NOT NULL REFERENCES resource (uid) ON DELETE CASCADE,
    reference text NOT NULL,
    PRIMARY KEY (uid, reference)
);
-- Dependencies on those of other namespaces, and taking over from them, needed no leave before.
INSERT INTO granted_reference (uid, reference)
SELECT DISTINCT own.uid, used.key FROM resource own, unnest(own.refers_to) AS used (key)
WHERE own.api_group = 'kustomize.toolkit.fluxcd.io' AND own.kind = 'Kustomization'
  AND split_part(used.key, '/', 1) = 'Kustomization' AND split_part(used.key, '/', 2) <> own.namespace
UNION
SELECT own.uid, 'Kustomization/' || btrim(said.name)
FROM resource own, regexp_split_to_table(own.object #>> '{metadata,annotations,fleet.roadstead.dev/takes-over}', ',') AS said (name)
WHERE own.api_group = 'kustomize.toolkit.fluxcd.io' AND own.kind = 'Kustomization';
