-- What lists and roll-ups show of each object, beside it: an object is compressed, and each look into one unpacks the whole.
ALTER TABLE resource
    ADD COLUMN ready jsonb GENERATED ALWAYS AS
        (jsonb_path_query_first(object, '$.status.conditions[*] ? (@.type == "Ready")')) STORED,
    ADD COLUMN suspended boolean NOT NULL GENERATED ALWAYS AS
        (coalesce(object #>> '{spec,suspend}', '') = 'true') STORED,
    -- The Cluster that a Kustomization names.
    ADD COLUMN cluster_ref text GENERATED ALWAYS AS (object #>> '{spec,clusterRef,name}') STORED,
    -- The Secret with the kubeconfig, as namespace/name: a Cluster says both, the others mean their own namespace.
    ADD COLUMN kubeconfig text GENERATED ALWAYS AS
        (CASE kind WHEN 'Cluster' THEN object #>> '{spec,kubeConfig,secretRef,namespace}' ELSE namespace END
         || '/' || (object #>> '{spec,kubeConfig,secretRef,name}')) STORED;

DROP INDEX resource_cluster_ref, resource_cluster_secret, resource_kubeconfig;
CREATE INDEX resource_cluster_ref ON resource (cluster_ref) WHERE cluster_ref IS NOT NULL;
CREATE INDEX resource_kubeconfig ON resource (kubeconfig) WHERE kubeconfig IS NOT NULL;
