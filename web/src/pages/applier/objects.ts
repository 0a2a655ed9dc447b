/** The objects that an applier owns, with what is known of their health, as a table and as a tree. Pure. */
import type { Applier } from '../../api/kinds';
import { conditionOf } from '../../api/kinds';
import type { Attempt, Reconciliations } from '../../api/queries';
import type { State } from '../../ui/Status';
import { healthState } from '../../ui/Status';
import { matches } from '../../lib/words';

export interface OwnedObject {
  id: string;
  group: string;
  version: string;
  kind: string;
  namespace: string;
  name: string;
  state: State;
  /** The state in a word. */
  word: string;
  /** Why it is so. */
  why: string;
  /** What the last attempt that told of it did. */
  action: string;
}

/** `<namespace>_<name>_<group>_<kind>`, where a name may hold `_` and has `:` written as `__`. */
export function parseEntry(
  id: string,
  version: string,
): Omit<OwnedObject, 'state' | 'word' | 'why' | 'action'> | null {
  const first = id.indexOf('_');
  const last = id.lastIndexOf('_');
  const middle = id.lastIndexOf('_', last - 1);
  if (first < 0 || middle <= first) return null;
  return {
    id,
    version,
    namespace: id.slice(0, first),
    name: id.slice(first + 1, middle).replaceAll('__', ':'),
    group: id.slice(middle + 1, last),
    kind: id.slice(last + 1),
  };
}

function keyOf(object: { kind: string; namespace?: string | undefined; name: string }): string {
  return object.namespace
    ? `${object.kind}/${object.namespace}/${object.name}`
    : `${object.kind}/${object.name}`;
}

interface Told {
  health: ReadonlyMap<string, string>;
  actions: ReadonlyMap<string, string>;
  /** What is true of an object of which nothing was told. */
  otherwise: [State, string, string];
  failure: string;
}

/** All that it owns, and what is being applied for the first time. */
export function ownedObjects(object: Applier, history: Reconciliations | undefined): OwnedObject[] {
  const told = toldOf(object, history);
  const found = new Map<string, OwnedObject>();
  for (const { id, v } of object.status?.inventory?.entries ?? []) {
    const entry = parseEntry(id, v);
    if (entry) found.set(keyOf(entry), describe(entry, told));
  }
  for (const { object: each, action } of history?.underWay?.results ?? []) {
    const key = keyOf(each);
    if (found.has(key) || action === 'deleted') continue;
    found.set(key, describe({ ...each, namespace: each.namespace ?? '', id: key }, told));
  }
  return [...found.values()];
}

function toldOf(object: Applier, history: Reconciliations | undefined): Told {
  const underWay = history?.underWay;
  const attempts = history?.items ?? [];
  const ended = attempts.find((attempt) => attempt.reason != null);
  // The hub gives it with one attempt: the newest that waited.
  const health = new Map(attempts.flatMap((attempt) => Object.entries(attempt.health ?? {})));
  for (const [key, text] of Object.entries(underWay?.health ?? {})) health.set(key, text);
  const actions = new Map<string, string>();
  for (const attempt of [...attempts].reverse()) note(actions, attempt.changeSet);
  note(actions, underWay?.results ?? []);
  return { health, actions, otherwise: otherwise(object, ended), failure: failureOf(ended) };
}

function note(actions: Map<string, string>, results: Attempt['changeSet']): void {
  for (const { object, action } of results) {
    if (action !== 'unchanged' && action !== 'skipped') actions.set(keyOf(object), action);
  }
}

function otherwise(object: Applier, ended: Attempt | undefined): Told['otherwise'] {
  const ready = conditionOf(object, 'Ready');
  if (ended?.reason === 'ReconciliationSucceeded') {
    return object.spec?.wait === true
      ? ['ok', 'Healthy', 'The last reconciliation waited until it was.']
      : ['ok', 'Applied', 'Its health was not waited for (spec.wait is not set).'];
  }
  if (!ended) return ['unknown', 'Unknown', ready?.message ?? ''];
  return ['unknown', 'Unknown', 'The last reconciliation failed before it told of this object.'];
}

function failureOf(ended: Attempt | undefined): string {
  return ended && ended.reason !== 'ReconciliationSucceeded' ? (ended.message ?? '') : '';
}

function describe(entry: NonNullable<ReturnType<typeof parseEntry>>, told: Told): OwnedObject {
  const key = keyOf(entry);
  const action = told.actions.get(key) ?? '';
  const text = told.health.get(key);
  if (text !== undefined) {
    const { state, word, why } = healthState(text);
    return { ...entry, state, word, why: why || explain(state, key, told), action };
  }
  if (names(told.failure, key))
    return { ...entry, state: 'failing', word: 'Failed', why: told.failure, action };
  const [state, word, why] = told.otherwise;
  return { ...entry, state, word, why, action };
}

function explain(state: State, key: string, told: Told): string {
  return state !== 'ok' && names(told.failure, key) ? told.failure : '';
}

/** Whether a message names an object, and not another one whose name begins the same. */
function names(message: string, key: string): boolean {
  let at = message.indexOf(key);
  while (at >= 0) {
    const next = message.charAt(at + key.length);
    if (!/[a-z0-9-]/i.test(next) && !/\.[a-z0-9]/i.test(message.slice(at + key.length, at + key.length + 2)))
      return true;
    at = message.indexOf(key, at + 1);
  }
  return false;
}

export function filterObjects(objects: readonly OwnedObject[], q: string, state: string): OwnedObject[] {
  return objects.filter(
    (each) =>
      (state === '' || each.state === state) &&
      matches(q, [each.kind, each.namespace, each.name, each.group, each.action]),
  );
}

const SEVERITY: readonly State[] = [
  'failing',
  'away',
  'unknown',
  'progressing',
  'waiting',
  'suspended',
  'skipped',
  'ok',
];

export function worst(states: Iterable<State>): State {
  let found = SEVERITY.length - 1;
  for (const state of states) found = Math.min(found, SEVERITY.indexOf(state));
  return SEVERITY[found] ?? 'ok';
}

export interface TreeRow {
  key: string;
  depth: number;
  /** Of those beneath the same parent: which, from 1 on, and of how many. */
  position: number;
  siblings: number;
  title: string;
  state: State;
  /** How many objects are beneath; none for an object. */
  count?: number;
  open?: boolean;
  object?: OwnedObject;
}

/** The tree as rows: namespaces, in them kinds, in those objects. `closed` are the keys whose children are left out. */
export function tree(objects: readonly OwnedObject[], closed: ReadonlySet<string>): TreeRow[] {
  const rows: TreeRow[] = [];
  const namespaces = grouped(objects, (each) => each.namespace || '(cluster-scoped)');
  namespaces.forEach(([namespace, within], index) => {
    const key = `ns ${namespace}`;
    if (
      !branch(
        rows,
        closed,
        { key, depth: 1, title: namespace, position: index + 1, siblings: namespaces.length },
        within,
      )
    ) {
      return;
    }
    const kinds = grouped(within, (each) => each.kind);
    kinds.forEach(([kind, same], position) => {
      const kindKey = `${key} ${kind}`;
      const row = { key: kindKey, depth: 2, title: kind, position: position + 1, siblings: kinds.length };
      if (!branch(rows, closed, row, same)) return;
      same.forEach((object, at) => {
        const { id, name, state } = object;
        rows.push({ key: id, depth: 3, title: name, state, object, position: at + 1, siblings: same.length });
      });
    });
  });
  return rows;
}

function branch(
  rows: TreeRow[],
  closed: ReadonlySet<string>,
  row: Pick<TreeRow, 'key' | 'depth' | 'title' | 'position' | 'siblings'>,
  beneath: readonly OwnedObject[],
): boolean {
  const open = !closed.has(row.key);
  rows.push({ ...row, state: worst(beneath.map((each) => each.state)), count: beneath.length, open });
  return open;
}

function grouped(
  objects: readonly OwnedObject[],
  by: (object: OwnedObject) => string,
): [string, OwnedObject[]][] {
  const found = new Map<string, OwnedObject[]>();
  for (const each of objects) {
    const group = by(each);
    const same = found.get(group);
    if (same) same.push(each);
    else found.set(group, [each]);
  }
  return [...found].sort(([a], [b]) => (a < b ? -1 : 1));
}
