/** Keeps what the pages know up to date by the stream of changes. */
import type { InfiniteData, QueryClient } from '@tanstack/react-query';

import { gate } from '../api/client';
import type { ApplierItem, ApplierPage, ClusterItem, ClusterPage } from '../api/queries';
import { clusterNames, keys } from '../api/queries';
import { SOURCE_KINDS } from '../api/kinds';
import type { Change, StreamState } from './stream';
import { ChangeStream } from './stream';
import { Throttle } from './throttle';

/** How often the hub is asked again at most, in milliseconds. */
const PERIOD = { object: 400, clusters: 700, allClusters: 10_000, lists: 3_000, events: 3_000 };
/** Beyond so many changed clusters all of them are asked for. */
const FEW = 60;
/** Queries wait so long for the stream, so that nothing which changes between the two is missed. */
const WAIT = 1_500;

export class Live {
  private state: StreamState = { phase: 'connecting' };
  private readonly listeners = new Set<() => void>();
  private readonly throttle = new Throttle();
  private readonly dirty = new Set<string>();
  private readonly stream: ChangeStream;
  private settle: () => void = () => undefined;
  /** Resolves when the stream is open, has failed, or takes too long. */
  private readonly settled: Promise<void>;
  private opens = 0;

  constructor(private readonly client: QueryClient) {
    this.settled = new Promise((resolve) => {
      this.settle = resolve;
      setTimeout(resolve, WAIT);
    });
    this.stream = new ChangeStream({
      onChange: (change) => this.apply(change),
      onOpen: (resumed) => this.opened(resumed),
      onState: (state) => this.say(state),
    });
  }

  start(): void {
    gate.open = () => this.settled;
    document.addEventListener('visibilitychange', this.seen);
    this.stream.start();
  }

  stop(): void {
    document.removeEventListener('visibilitychange', this.seen);
    this.stream.stop();
    this.throttle.stop();
  }

  retryNow = (): void => this.stream.retryNow();

  current = (): StreamState => this.state;

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  private say(state: StreamState): void {
    this.state = state;
    if (state.phase !== 'connecting') this.settle();
    for (const listener of this.listeners) listener();
  }

  private opened(resumed: boolean): void {
    this.opens += 1;
    // At first, the queries have waited for the stream.
    if (this.opens > 1 && !resumed) void this.client.invalidateQueries();
  }

  private seen = (): void => {
    if (!document.hidden && this.dirty.size > 0) this.askClusters();
  };

  apply(change: Change): void {
    const { kind } = change;
    this.refresh(keys.object(change), PERIOD.object);
    // The stream tells of Clusters, sources and appliers, and of those there may be kinds that are not known here.
    if (SOURCE_KINDS.some((source) => source.kind === kind)) {
      this.refresh(keys.sources(), PERIOD.lists);
    } else if (kind !== 'Cluster') {
      this.refresh(keys.reconciliations(change), PERIOD.object);
      this.refresh(keys.drift(change), PERIOD.object);
      this.refresh(keys.row(change), PERIOD.lists);
      this.patchLists(change);
    }
    if (change.cluster !== '') {
      this.refresh(keys.cluster(change.cluster), PERIOD.clusters);
      this.dirty.add(change.cluster);
      // What nobody sees can wait until somebody does.
      if (!document.hidden) this.askClusters();
    }
    this.refresh(keys.events(), PERIOD.events);
    this.refresh(keys.incidents(), PERIOD.events);
    this.refresh(keys.deliveries(), PERIOD.events);
  }

  private refresh(queryKey: readonly unknown[], period: number): void {
    const hash = JSON.stringify(queryKey);
    this.throttle.run(hash, period, () => void this.client.invalidateQueries({ queryKey }));
  }

  private askClusters(): void {
    const query = this.client.getQueryCache().find<ClusterPage>({ queryKey: keys.clusters(), exact: true });
    if (!query) {
      this.dirty.clear();
      return;
    }
    if (!query.isActive()) {
      this.dirty.clear();
      void this.client.invalidateQueries({ queryKey: keys.clusters(), exact: true, refetchType: 'none' });
      return;
    }
    if (this.dirty.size > FEW) {
      this.throttle.run('all clusters', PERIOD.allClusters, () => {
        this.dirty.clear();
        void this.client.invalidateQueries({ queryKey: keys.clusters(), exact: true });
      });
      return;
    }
    this.throttle.run('some clusters', PERIOD.clusters, () => void this.askDirty());
  }

  private async askDirty(): Promise<void> {
    if (this.dirty.size > FEW) {
      this.askClusters();
      return;
    }
    const names = [...this.dirty];
    this.dirty.clear();
    if (names.length === 0) return;
    try {
      const fresh = await clusterNames(names);
      this.client.setQueryData<ClusterPage>(keys.clusters(), (page) => page && merge(page, names, fresh));
    } catch {
      // The whole list asks again, and shows what fails where it fails, too.
      void this.client.invalidateQueries({ queryKey: keys.clusters(), exact: true });
    }
  }

  /** Writes a change into the lists that hold the object; whether it enters or leaves one the hub is asked. */
  private patchLists(change: Change): void {
    if (change.type === 'MODIFIED') {
      this.client.setQueriesData<InfiniteData<ApplierPage>>(
        { queryKey: keys.appliers() },
        (lists) => lists && patched(lists, change),
      );
    }
    this.refresh(keys.appliers(), PERIOD.lists);
  }
}

/** The list with what is fresh of these clusters; those that were asked for and not found are gone. */
export function merge(
  page: ClusterPage,
  names: readonly string[],
  fresh: readonly ClusterItem[],
): ClusterPage {
  const news = new Map(fresh.map((item) => [item.name, item]));
  const asked = new Set(names);
  const items: ClusterItem[] = [];
  for (const item of page.items) {
    const now = news.get(item.name);
    news.delete(item.name);
    if (now) items.push(now);
    else if (!asked.has(item.name)) items.push(item);
  }
  if (news.size === 0) return { ...page, items };
  items.push(...news.values());
  items.sort((a, b) => (a.name < b.name ? -1 : 1));
  return { ...page, items };
}

function patched(lists: InfiniteData<ApplierPage>, change: Change): InfiniteData<ApplierPage> {
  const isIt = (item: ApplierItem): boolean =>
    item.kind === change.kind && item.namespace === change.namespace && item.name === change.name;
  if (!lists.pages.some((page) => page.items.some(isIt))) return lists;
  const news = (item: ApplierItem): ApplierItem => {
    const { ready: _ready, ...rest } = item;
    return { ...rest, suspended: change.suspended, ...(change.ready && { ready: change.ready }) };
  };
  const pages = lists.pages.map((page) => ({
    ...page,
    items: page.items.map((item) => (isIt(item) ? news(item) : item)),
  }));
  return { ...lists, pages };
}
