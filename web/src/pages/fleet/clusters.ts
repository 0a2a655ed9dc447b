/** What a cluster's figures come to, and which clusters are shown in which order. Pure. */
import type { ClusterItem } from '../../api/queries';
import type { State } from '../../ui/Status';
import { matches } from '../../lib/words';

/** Of a cluster, the worst first. */
export const STATES = [
  'failing',
  'away',
  'waiting',
  'progressing',
  'unknown',
  'suspended',
  'ok',
] as const satisfies State[];
export type ClusterState = (typeof STATES)[number];

export const STATE_WORDS: Record<ClusterState, string> = {
  failing: 'Failing',
  away: 'Away',
  waiting: 'Awaiting agent',
  progressing: 'Progressing',
  unknown: 'Unknown',
  suspended: 'Suspended',
  ok: 'Healthy',
};

export function clusterState(cluster: ClusterItem): ClusterState {
  const { connection, ready, appliers } = cluster;
  if (!connection)
    return ready?.status === 'False' && ready.reason !== 'AwaitingAgent' ? 'failing' : 'waiting';
  if (!connection.connected) return 'away';
  if ((appliers.False ?? 0) > 0) return 'failing';
  if ((appliers.Unknown ?? 0) > 0) return 'progressing';
  if ((appliers.Suspended ?? 0) > 0 && !appliers.True) return 'suspended';
  return 'ok';
}

export function total(cluster: ClusterItem): number {
  return Object.values(cluster.appliers).reduce((sum, each) => sum + each, 0);
}

export interface Shown {
  cluster: ClusterItem;
  state: ClusterState;
}

export interface Group {
  group: string;
  clusters: number;
  states: Partial<Record<ClusterState, number>>;
}

export type FleetRow = Shown | Group;

export interface View {
  /** Words, of which `key=value` and `key` with a `=` behind are of labels. */
  q: string;
  state: string;
  sort: string;
  group: string;
}

/** Whether a cluster has all that is typed: a word is looked for in names and versions, `key=value` among labels. */
export function fits(cluster: ClusterItem, q: string): boolean {
  const words = q.split(/\s+/).filter(Boolean);
  return words.every((word) => {
    const [key = '', value] = word.split(/=(.*)/s, 2);
    if (value === undefined || key === '') return matches(word, textsOf(cluster));
    const held = cluster.labels[key];
    return value === '' ? held !== undefined : held === value;
  });
}

function textsOf(cluster: ClusterItem): string[] {
  const labels = Object.entries(cluster.labels).map(([key, value]) => `${key}=${value}`);
  const reasons = cluster.failing.map((failure) => failure.reason);
  return [cluster.name, cluster.kubernetesVersion ?? '', cluster.agentVersion ?? '', ...labels, ...reasons];
}

const LABEL = 'label:';

/** Why a cluster stands under which heading. */
function groupOf({ cluster, state }: Shown, by: string): string {
  if (by === 'state') return STATE_WORDS[state];
  if (by === 'version') return cluster.kubernetesVersion ?? 'version not known';
  const key = by.slice(LABEL.length);
  const value = cluster.labels[key];
  return value === undefined ? `without ${key}` : `${key}=${value}`;
}

export function counts(clusters: readonly ClusterItem[]): Record<ClusterState, number> {
  const found = Object.fromEntries(STATES.map((state) => [state, 0])) as Record<ClusterState, number>;
  for (const cluster of clusters) found[clusterState(cluster)] += 1;
  return found;
}

/** The rows of the fleet: filtered, sorted, and under headings where that is wanted. */
export function fleetRows(
  clusters: readonly ClusterItem[],
  view: View,
  folded: ReadonlySet<string>,
): FleetRow[] {
  const shown = clusters
    .map((cluster): Shown => ({ cluster, state: clusterState(cluster) }))
    .filter(({ cluster, state }) => (view.state === '' || state === view.state) && fits(cluster, view.q));
  if (view.sort !== 'name') {
    const severity = (row: Shown): number => STATES.indexOf(row.state);
    const failing = (row: Shown): number => row.cluster.appliers.False ?? 0;
    shown.sort((a, b) => severity(a) - severity(b) || failing(b) - failing(a));
  }
  if (view.group === '') return shown;
  const groups = new Map<string, Shown[]>();
  for (const row of shown) {
    const name = groupOf(row, view.group);
    const rows = groups.get(name);
    if (rows) rows.push(row);
    else groups.set(name, [row]);
  }
  return [...groups]
    .sort(([a], [b]) => a.localeCompare(b, 'en', { numeric: true }))
    .flatMap(([group, rows]): FleetRow[] => {
      const states: Group['states'] = {};
      for (const { state } of rows) states[state] = (states[state] ?? 0) + 1;
      const heading: Group = { group, clusters: rows.length, states };
      return folded.has(group) ? [heading] : [heading, ...rows];
    });
}

/** The keys of labels that clusters have, the most frequent first. */
export function labelKeys(clusters: readonly ClusterItem[]): string[] {
  return frequent(clusters.flatMap((cluster) => Object.keys(cluster.labels)));
}

const SUGGESTED = 50;

/** Labels to suggest in the filter. */
export function labelPairs(clusters: readonly ClusterItem[]): string[] {
  const pairs = clusters.flatMap((cluster) =>
    Object.entries(cluster.labels).map(([key, value]) => `${key}=${value}`),
  );
  return frequent(pairs).slice(0, SUGGESTED);
}

function frequent(texts: readonly string[]): string[] {
  const found = new Map<string, number>();
  for (const text of texts) found.set(text, (found.get(text) ?? 0) + 1);
  return [...found].sort(([a, m], [b, n]) => n - m || (a < b ? -1 : 1)).map(([text]) => text);
}
