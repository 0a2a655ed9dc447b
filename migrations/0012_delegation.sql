-- What a child remembers: the namespace that Git names, and the account that it has from its parent. A row outlives its parent
-- (then without one), so that it stays known what Git made.
ALTER TABLE child
    ADD COLUMN git_namespace text NOT NULL DEFAULT '',
    -- namespace/name of the parent, which may take up again what it left behind.
    ADD COLUMN origin        text NOT NULL DEFAULT '',
    -- namespace/name of the service account that the parent acts as; empty for none.
    ADD COLUMN account       text NOT NULL DEFAULT '',
    -- A person made the object: it is updated from Git, and never deleted by leaving it out.
    ADD COLUMN kept          boolean NOT NULL DEFAULT false,
    ALTER COLUMN parent DROP NOT NULL,
    DROP CONSTRAINT child_parent_fkey,
    ADD CONSTRAINT child_parent_fkey FOREIGN KEY (parent) REFERENCES resource (uid) ON DELETE SET NULL;

UPDATE child SET origin = parent.namespace || '/' || parent.name
FROM resource parent WHERE parent.uid = child.parent;
-- A Kustomization's own source was there before its first build was; and who made the others stands in the audit.
UPDATE child SET kept = true FROM resource parent
WHERE parent.uid = child.parent AND child.kind = parent.object #>> '{spec,sourceRef,kind}'
  AND child.name = parent.object #>> '{spec,sourceRef,name}'
  AND child.namespace = coalesce(parent.object #>> '{spec,sourceRef,namespace}', parent.namespace);
-- The log is read once, however many children there are.
UPDATE child SET kept = true
FROM (SELECT DISTINCT ON (kind, namespace, name) kind, namespace, name, username FROM audit
      WHERE verb = 'create' AND kind IN (SELECT DISTINCT kind FROM child)
      ORDER BY kind, namespace, name, id DESC) made
WHERE made.kind = child.kind AND made.namespace = child.namespace AND made.name = child.name
  AND made.username <> 'system:roadstead:hub';

-- Namespaces of the hub that deployed to a cluster before there was spec.access: they keep all rights there as long as the
-- Cluster has no spec.access.
CREATE TABLE cluster_access_before (
    cluster_uid uuid NOT NULL REFERENCES resource (uid) ON DELETE CASCADE,
    namespace   text NOT NULL,
    PRIMARY KEY (cluster_uid, namespace)
);
INSERT INTO cluster_access_before
SELECT cluster.uid, used.namespace FROM resource cluster JOIN resource used ON used.cluster_ref = cluster.name
WHERE cluster.kind = 'Cluster' AND used.kind = 'Kustomization'
UNION SELECT cluster.uid, used.namespace FROM resource cluster JOIN resource used USING (kubeconfig)
WHERE cluster.kind = 'Cluster' AND used.kind = 'Kustomization'
UNION SELECT cluster.uid, used.namespace
FROM inventory JOIN resource cluster ON cluster.uid = inventory.cluster_uid
JOIN resource used ON used.uid = inventory.kustomization;
