/** What the pages ask the hub for, and under which keys the answers are kept. */
import { infiniteQueryOptions, queryOptions } from '@tanstack/react-query';

import { fleet, found, get, mergePatch, post, remove } from './client';
import type { components } from './fleet';
import type { KubeObject, ObjectId } from './kinds';
import { pathIn, pathOf, pathOfAll } from './kinds';
import { HubFailure } from './errors';
import { hubNow } from '../lib/clock';

type Schemas = components['schemas'];
export type ClusterItem = Schemas['ClusterItem'];
export type ApplierItem = Schemas['ApplierItem'];
export type SourceItem = Schemas['SourceItem'];
export type EventItem = Schemas['EventItem'];
export type InventoryItem = Schemas['InventoryItem'];
export type ReadyState = Schemas['ReadyState'];
export type Reconciliations = Schemas['Reconciliations'];
export type Attempt = Schemas['ReconciliationView'];
export type ObjectRef = Schemas['ObjectRef'];
export type BuildDiff = Schemas['BuildDiff'];
export type AuditItem = Schemas['AuditItem'];
export type DriftItem = Schemas['DriftItem'];
export type IncidentItem = Schemas['IncidentItem'];
export type DeliveryItem = Schemas['DeliveryItem'];
export type SilenceItem = Schemas['SilenceItem'];

export interface Page<T> {
  items: T[];
  continue?: string | null;
}
export type ClusterPage = Page<ClusterItem>;
export type ApplierPage = Page<ApplierItem>;

export interface ApplierFilter {
  kind?: string;
  cluster?: string;
  namespace?: string;
  name?: string;
  state?: string;
  source?: string;
  sourceKind?: string;
  sourceNamespace?: string;
}
export interface EventFilter {
  kind?: string;
  namespace?: string;
  name?: string;
  type?: string;
}
export interface AuditFilter {
  user?: string;
  verb?: string;
  kind?: string;
  namespace?: string;
  name?: string;
  outcome?: string;
  request?: string;
  /** `true`: by an administrator's credential only. */
  administrator?: string;
}
export interface IncidentFilter {
  namespace?: string;
  alert?: string;
  /** `true`: only those that are not over. */
  open?: string;
}
export interface DeliveryFilter {
  namespace?: string;
  alert?: string;
  state?: string;
}
export interface InventoryFilter {
  cluster?: string;
  kind?: string;
  namespace?: string;
  name?: string;
  labels?: string;
}

export const keys = {
  clusters: () => ['clusters'] as const,
  cluster: (name: string) => ['cluster', name] as const,
  appliers: () => ['appliers'] as const,
  row: ({ kind, namespace, name }: ObjectId) => ['row', kind, namespace, name] as const,
  events: () => ['events'] as const,
  sources: () => ['sources'] as const,
  incidents: () => ['incidents'] as const,
  deliveries: () => ['deliveries'] as const,
  silences: () => ['silences'] as const,
  object: ({ kind, namespace, name }: ObjectId) => ['object', kind, namespace, name] as const,
  reconciliations: ({ kind, namespace, name }: ObjectId) =>
    ['reconciliations', kind, namespace, name] as const,
  drift: ({ kind, namespace, name }: ObjectId) => ['drift', kind, namespace, name] as const,
};

const LIST = 500;
/** Incidents or deliveries of a page. */
const TOLD = 50;
/** Of what is shown at once, so many pages are asked for. */
const MOST_PAGES = 20;

/** Without what is empty, which the hub would take for a filter. */
function given<T extends object>(filter: T): T {
  return Object.fromEntries(Object.entries(filter).filter(([, value]) => Boolean(value))) as T;
}

export const clusters = queryOptions({
  queryKey: keys.clusters(),
  queryFn: ({ signal }): Promise<ClusterPage> => found(fleet.GET('/fleet/v1/clusters', { signal })),
  meta: { keep: true },
});

/** Some of the clusters, as they are now. */
export async function clusterNames(names: readonly string[]): Promise<ClusterItem[]> {
  const query = { names: names.join(',') };
  return (await found(fleet.GET('/fleet/v1/clusters', { params: { query } }))).items;
}

/** One cluster; null where there is none of that name. */
export const clusterOf = (name: string) =>
  queryOptions({
    queryKey: keys.cluster(name),
    queryFn: async (): Promise<ClusterItem | null> => (await clusterNames([name]))[0] ?? null,
    meta: { keep: true },
  });

/** What lists show of one applier; null where there is none of that kind and name. */
export const applierRow = (id: ObjectId) =>
  queryOptions({
    queryKey: keys.row(id),
    queryFn: ({ signal }): Promise<ApplierItem | null> => findApplier(id, signal),
    meta: { keep: true },
  });

async function findApplier(
  { kind, namespace, name }: ObjectId,
  signal?: AbortSignal,
): Promise<ApplierItem | null> {
  const query = { kind, namespace, name, limit: LIST };
  const page = await found(fleet.GET('/fleet/v1/appliers', { params: { query }, ...(signal && { signal }) }));
  // The hub looks for names that hold this one.
  return page.items.find((item) => item.name === name) ?? null;
}

export const appliers = (filter: ApplierFilter) =>
  infiniteQueryOptions({
    queryKey: [...keys.appliers(), given(filter)],
    queryFn: ({ pageParam, signal }): Promise<ApplierPage> =>
      found(
        fleet.GET('/fleet/v1/appliers', {
          params: { query: { ...given(filter), limit: LIST, ...(pageParam && { continue: pageParam }) } },
          signal,
        }),
      ),
    initialPageParam: '',
    getNextPageParam: (page) => page.continue ?? undefined,
    meta: { keep: true },
  });

export const events = (filter: EventFilter) =>
  infiniteQueryOptions({
    queryKey: [...keys.events(), given(filter)],
    queryFn: ({ pageParam, signal }): Promise<Page<EventItem>> =>
      found(
        fleet.GET('/fleet/v1/events', {
          params: { query: { ...given(filter), limit: 200, ...(pageParam && { continue: pageParam }) } },
          signal,
        }),
      ),
    initialPageParam: '',
    getNextPageParam: (page) => page.continue ?? undefined,
    meta: { keep: true },
  });

/** The audit log, the newest first. It is not kept: it is for those who may read it now. */
export const audit = ({ administrator, ...filter }: AuditFilter) =>
  infiniteQueryOptions({
    queryKey: ['audit', given({ administrator, ...filter })],
    queryFn: ({ pageParam, signal }): Promise<Page<AuditItem>> =>
      found(
        fleet.GET('/fleet/v1/audit', {
          params: {
            query: {
              ...given(filter),
              ...(administrator === 'true' && { administrator: true }),
              order: 'newest',
              limit: 100,
              ...(pageParam && { continue: pageParam }),
            },
          },
          signal,
        }),
      ),
    initialPageParam: '',
    getNextPageParam: (page) => page.continue ?? undefined,
    staleTime: 10_000,
  });

/** Failures that have one cause, the latest first. */
export const incidents = ({ open, ...filter }: IncidentFilter) =>
  infiniteQueryOptions({
    queryKey: [...keys.incidents(), given({ open, ...filter })],
    queryFn: ({ pageParam, signal }): Promise<Page<IncidentItem>> =>
      found(
        fleet.GET('/fleet/v1/incidents', {
          params: {
            query: {
              ...given(filter),
              ...(open === 'true' && { open: true }),
              limit: TOLD,
              ...(pageParam && { before: pageParam }),
            },
          },
          signal,
        }),
      ),
    initialPageParam: '',
    getNextPageParam: (page) => (page.items.length < TOLD ? undefined : page.items.at(-1)?.opened),
    // No stream tells of them.
    refetchInterval: 15_000,
    meta: { keep: true },
  });

/** What Alerts send, the latest first. */
export const deliveries = (filter: DeliveryFilter) =>
  infiniteQueryOptions({
    queryKey: [...keys.deliveries(), given(filter)],
    queryFn: ({ pageParam, signal }): Promise<Page<DeliveryItem>> =>
      found(
        fleet.GET('/fleet/v1/deliveries', {
          params: { query: { ...given(filter), limit: TOLD, ...(pageParam && { before: pageParam }) } },
          signal,
        }),
      ),
    initialPageParam: 0,
    getNextPageParam: (page) => (page.items.length < TOLD ? undefined : page.items.at(-1)?.id),
    // No stream tells of them.
    refetchInterval: 15_000,
    meta: { keep: true },
  });

/** Silences that are not over for long, by namespace and name. */
export const silences = (namespace: string) =>
  queryOptions({
    queryKey: [...keys.silences(), given({ namespace })],
    queryFn: async ({ signal }): Promise<SilenceItem[]> => {
      const query = { ...given({ namespace }), limit: LIST };
      return (await found(fleet.GET('/fleet/v1/silences', { params: { query }, signal }))).items;
    },
    // No stream tells of them.
    refetchInterval: 15_000,
    meta: { keep: true },
  });

/** What a Silence is to keep back: all that is empty does not narrow it. */
export interface SilenceOrder {
  namespace: string;
  reason: string;
  hours: number;
  cluster: string;
  kind: string;
  name: string;
  alert: string;
}

/** Makes a Silence that begins now. The hub notes who made it. */
export function makeSilence(order: SilenceOrder): Promise<KubeObject> {
  const { namespace, reason, hours, cluster, kind, name, alert } = order;
  const objects = given({ cluster, kind, name });
  return post(pathOfAll('Silence', namespace) ?? '', {
    apiVersion: 'fleet.roadstead.dev/v1alpha1',
    kind: 'Silence',
    metadata: { generateName: 'dashboard-', namespace },
    spec: {
      reason,
      until: new Date(hubNow() + hours * 3_600_000).toISOString().replace(/\.\d+Z$/, 'Z'),
      ...(Object.keys(objects).length > 0 && { objects: [objects] }),
      ...(alert !== '' && { alerts: [{ name: alert }] }),
    },
  });
}

/** Ends a Silence: one that is gone is over. */
export async function endSilence(id: ObjectId): Promise<void> {
  await remove(pathOf(id) ?? '');
}

export const inventory = (filter: InventoryFilter) =>
  infiniteQueryOptions({
    queryKey: ['inventory', given(filter)],
    queryFn: ({ pageParam, signal }): Promise<Page<InventoryItem>> =>
      found(
        fleet.GET('/fleet/v1/inventory', {
          params: { query: { ...given(filter), limit: 200, ...(pageParam && { continue: pageParam }) } },
          signal,
        }),
      ),
    initialPageParam: '',
    getNextPageParam: (page) => page.continue ?? undefined,
  });

export const reconciliations = ({ kind, namespace, name }: ObjectId) =>
  queryOptions({
    queryKey: keys.reconciliations({ kind, namespace, name }),
    queryFn: ({ signal }): Promise<Reconciliations> =>
      found(
        fleet.GET('/fleet/v1/appliers/{kind}/{namespace}/{name}/reconciliations', {
          params: { path: { kind, namespace, name }, query: { changedOnly: true } },
          signal,
        }),
      ),
    // What an agent is doing right now is told by no stream: asked for while there is something under way.
    refetchInterval: (query) => (query.state.data?.underWay ? 1_000 : false),
    meta: { keep: true },
  });

/** What differs between the build of an attempt and the build before it: that stays as it is. */
export const diff = ({ kind, namespace, name }: ObjectId, attempt: number) =>
  queryOptions({
    queryKey: ['diff', kind, namespace, name, attempt] as const,
    queryFn: ({ signal }): Promise<BuildDiff> =>
      found(
        fleet.GET('/fleet/v1/appliers/{kind}/{namespace}/{name}/diff', {
          params: { path: { kind, namespace, name }, query: { to: String(attempt) } },
          signal,
        }),
      ),
    staleTime: Infinity,
    retry: false,
  });

/** The last objects of an applier that differ, or differed, from what was applied. */
export const drift = ({ kind, namespace, name }: ObjectId) =>
  queryOptions({
    queryKey: keys.drift({ kind, namespace, name }),
    queryFn: ({ signal }): Promise<Page<DriftItem>> =>
      found(
        fleet.GET('/fleet/v1/drift/objects', {
          params: { query: { applierKind: kind, applierNamespace: namespace, applier: name } },
          signal,
        }),
      ),
  });

export const object = <T extends KubeObject = KubeObject>(id: ObjectId) =>
  queryOptions({
    queryKey: keys.object(id),
    queryFn: async ({ signal }): Promise<T> => get<T>(await resourcePath(id, signal), signal),
    meta: { keep: true },
  });

/** Where an object is in the resource API. Of kinds that are not known here, the hub is asked where its appliers are. */
async function resourcePath(id: ObjectId, signal?: AbortSignal): Promise<string> {
  const known = pathOf(id);
  if (known !== null) return known;
  const row = await findApplier(id, signal);
  if (row === null) {
    throw new HubFailure('notFound', `There is no ${id.kind} ${id.namespace}/${id.name} on this hub.`);
  }
  return pathIn({ kind: row.kind, api: row.apiVersion, plural: row.resource, namespaced: true }, id);
}

/** All sources that the user may see, as far as a page can show them. */
export const sources = queryOptions({
  queryKey: keys.sources(),
  queryFn: async ({ signal }): Promise<SourceItem[]> => {
    const all: SourceItem[] = [];
    let next: string | null | undefined = '';
    for (let page = 0; page < MOST_PAGES && typeof next === 'string'; page += 1) {
      const query = { limit: LIST, ...(next !== '' && { continue: next }) };
      const answer: Page<SourceItem> = await found(
        fleet.GET('/fleet/v1/sources', { params: { query }, signal }),
      );
      all.push(...answer.items);
      next = answer.continue;
    }
    return all;
  },
  meta: { keep: true },
});

/** Asks for a reconciliation now. */
export async function reconcile(id: ObjectId): Promise<KubeObject> {
  const requestedAt = new Date(hubNow()).toISOString();
  return mergePatch(await resourcePath(id), {
    metadata: { annotations: { 'reconcile.fluxcd.io/requestedAt': requestedAt } },
  });
}

/** Suspends or resumes. */
export async function suspend(id: ObjectId, suspended: boolean): Promise<KubeObject> {
  return mergePatch(await resourcePath(id), { spec: { suspend: suspended ? true : null } });
}
