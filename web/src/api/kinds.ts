/** Objects of the resource API, as far as the pages read them. */
import { APPLIER_KINDS } from '../pages/applier/kinds';

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

/** What the specs of all kinds of appliers say in the same words, where they say it. */
export interface ApplierSpec {
  pin?: { revision: string };
  suspend?: boolean;
  interval?: string;
  timeout?: string;
  wait?: boolean;
  clusterRef?: { name: string };
  kubeConfig?: { secretRef?: { name: string } };
  dependsOn?: { name: string; namespace?: string }[];
}

export interface ApplierStatus {
  lastAppliedRevision?: string;
  lastAttemptedRevision?: string;
  lastHandledReconcileAt?: string;
  inventory?: { entries?: { id: string; v: string }[] };
}

export interface SourceSpec {
  suspend?: boolean;
  interval?: string;
  url?: string;
  /** Of a Bucket: the server, and the bucket there. */
  endpoint?: string;
  bucketName?: string;
  ref?: Record<string, string>;
  sourceRef?: { kind: string; name: string; namespace?: string };
}

/** Where a source is fetched from; empty where nothing says so. */
export function addressOf(spec: SourceSpec | undefined): string {
  if (spec?.url !== undefined) return spec.url;
  const { endpoint, bucketName } = spec ?? {};
  return endpoint === undefined ? '' : `${endpoint.replace(/\/+$/, '')}/${bucketName ?? ''}`;
}

export interface SourceStatus {
  artifact?: { revision?: string; digest?: string; lastUpdateTime?: string; size?: number };
}

/** An object that deploys, of whichever kind. */
export type Applier = KubeObject<ApplierSpec, ApplierStatus>;
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
  { kind: 'ExternalArtifact', api: SOURCES, plural: 'externalartifacts', namespaced: true },
];

export const KINDS: readonly Resource[] = [
  ...APPLIER_KINDS,
  { kind: 'Cluster', api: 'fleet.roadstead.dev/v1alpha1', plural: 'clusters', namespaced: false },
  ...SOURCE_KINDS,
];

/** Those and what is asked for beside them. */
const KNOWN: readonly Resource[] = [
  ...KINDS,
  { kind: 'Silence', api: 'fleet.roadstead.dev/v1alpha1', plural: 'silences', namespaced: true },
];

/** The resource of a kind; none for kinds that are not known here, so Secrets are never asked for. */
export function resourceOf(kind: string): Resource | undefined {
  return KNOWN.find((known) => known.kind === kind);
}

export interface ObjectId {
  kind: string;
  namespace: string;
  name: string;
}

/** Where an object is in the resource API; none for kinds that are not known here. */
export function pathOf(id: ObjectId): string | null {
  const resource = resourceOf(id.kind);
  return resource ? pathIn(resource, id) : null;
}

/** Where the objects of a kind in a namespace are in the resource API; none for kinds that are not known here. */
export function pathOfAll(kind: string, namespace: string): string | null {
  const resource = resourceOf(kind);
  return resource ? pathIn(resource, { kind, namespace, name: '' }).replace(/\/$/, '') : null;
}

/** Where an object of this resource is in the resource API. */
export function pathIn(resource: Resource, { namespace, name }: ObjectId): string {
  const within = resource.namespaced ? `namespaces/${encodeURIComponent(namespace)}/` : '';
  return `/apis/${resource.api}/${within}${resource.plural}/${encodeURIComponent(name)}`;
}

export function conditionOf(object: KubeObject, type: string): Condition | undefined {
  return object.status?.conditions?.find((condition) => condition.type === type);
}
