-- Which object a row of child is about: the one that its parent made, or took over. Another one that has the name since is no
-- Kustomization's.
ALTER TABLE child
    -- None until it is written.
    ADD COLUMN object  uuid,
    -- A person had the parent take it over: what Git wrote of it has no more rights than the parent gave, also after that.
    ADD COLUMN adopted boolean NOT NULL DEFAULT false;
UPDATE child SET object = resource.uid FROM resource
WHERE resource.kind = child.kind AND resource.namespace = child.namespace AND resource.name = child.name;
-- What a person made under a name that a build had asked for before is the person's. Since Git may have written it meanwhile, it
-- has no more rights than it had until now.
UPDATE child SET kept = true, adopted = true
WHERE NOT kept AND object IS NOT NULL
  AND (SELECT username FROM audit
       WHERE audit.kind = child.kind AND audit.namespace = child.namespace AND audit.name = child.name
         AND verb = 'create' AND outcome = 'ok'
       ORDER BY id DESC LIMIT 1)
      NOT LIKE 'system:roadstead:%';
UPDATE child SET adopted = true FROM resource
WHERE child.kept AND resource.uid = child.object
  AND resource.object #> '{metadata,annotations,fleet.roadstead.dev/adopted-by}' IS NOT NULL;
