/** Objects of the resource API, as far as the pages read them. */

export interface Condition {
  type: string;
  status: string;
  reason?: string;
  message?: string;
  lastTransitionTime?: string;
  observedGeneration?: number;
}

export interface Metadata {
  name: string;
  namespace?: string;
  uid?: string;
  generation?: number;
  resourceVersion?: string;
  creationTimestamp?: string;
  deletionTimestamp?: string;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  managedFields?: unknown;
}

export interface KubeObject<Spec = object, Status = object> {
  apiVersion: string;
  kind: string;
  metadata: Metadata;
  spec?: Spec;
  status?: Status & { conditions?: Condition[]; observedGeneration?: number };
}

export interface KustomizationSpec {
  suspend?: boolean;
  interval?: string;
  path?: string;
  prune?: boolean;
  wait?: boolean;
  timeout?: string;
  targetNamespace?: string;
  sourceRef?: { kind: string; name: string; namespace?: string };
  clusterRef?: { name: string };
  kubeConfig?: { secretRef?: { name: string } };
  dependsOn?: { name: string; namespace?: string }[];
}

export interface KustomizationStatus {
  lastAppliedRevision?: string;
  lastAttemptedRevision?: string;
  lastHandledReconcileAt?: string;
  inventory?: { entries?: { id: string; v: string }[] };
}

export interface SourceSpec {
  suspend?: boolean;
  interval?: string;
  url?: string;
  ref?: Record<string, string>;
}

export interface SourceStatus {
  artifact?: { revision?: string; digest?: string; lastUpdateTime?: string; size?: number };
}

export type Kustomization = KubeObject<KustomizationSpec, KustomizationStatus>;
export type Source = KubeObject<SourceSpec, SourceStatus>;

export interface Resource {
  kind: string;
  /** API group and version. */
  api: string;
  plural: string;
  namespaced: boolean;
}

const SOURCES = 'source.toolkit.fluxcd.io/v1';

export const SOURCE_KINDS: readonly Resource[] = [
  { kind: 'GitRepository', api: SOURCES, plural: 'gitrepositories', namespaced: true },
  { kind: 'OCIRepository', api: SOURCES, plural: 'ocirepositories', namespaced: true },
  { kind: 'Bucket', api: SOURCES, plural: 'buckets', namespaced: true },
  { kind: 'HelmRepository', api: SOURCES, plural: 'helmrepositories', namespaced: true },
  { kind: 'HelmChart', api: SOURCES, plural: 'helmcharts', namespaced: true },
];

export const KINDS: readonly Resource[] = [
  {
    kind: 'Kustomization',
    api: 'kustomize.toolkit.fluxcd.io/v1',
    plural: 'kustomizations',
    namespaced: true,
  },
  { kind: 'Cluster', api: 'fleet.roadstead.dev/v1alpha1', plural: 'clusters', namespaced: false },
  ...SOURCE_KINDS,
];

export interface ObjectId {
  kind: string;
  namespace: string;
  name: string;
}

/** Where an object is in the resource API; none for kinds that no page shows, so Secrets are never asked for. */
export function pathOf({ kind, namespace, name }: ObjectId): string | null {
  const resource = KINDS.find((known) => known.kind === kind);
  if (!resource) return null;
  const within = resource.namespaced ? `namespaces/${encodeURIComponent(namespace)}/` : '';
  return `/apis/${resource.api}/${within}${resource.plural}/${encodeURIComponent(name)}`;
}

export function conditionOf(object: KubeObject, type: string): Condition | undefined {
  return object.status?.conditions?.find((condition) => condition.type === type);
}
