-- Which Cluster came on board by which Secret, and which Kustomizations name that Secret.
CREATE INDEX resource_cluster_secret ON resource
    ((object #>> '{spec,kubeConfig,secretRef,namespace}'), (object #>> '{spec,kubeConfig,secretRef,name}'))
    WHERE kind = 'Cluster';
CREATE INDEX resource_kubeconfig ON resource (namespace, (object #>> '{spec,kubeConfig,secretRef,name}'))
    WHERE kind = 'Kustomization' AND object #>> '{spec,kubeConfig,secretRef,name}' IS NOT NULL;
