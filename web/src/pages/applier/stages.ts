/** The way from sources to objects on a cluster: each stage's state, and how long it took. Pure. */
import type { Attempt, ClusterItem, Reconciliations } from '../../api/queries';
import type { Applier, ObjectId, Source } from '../../api/kinds';
import { conditionOf } from '../../api/kinds';
import { duration, parseDuration } from '../../lib/time';
import { shortRevision } from '../../lib/words';
import type { State } from '../../ui/Status';
import { readyState } from '../../ui/Status';
import { pageOf } from '../../ui/links';

export interface StageView {
  id: string;
  title: string;
  state: State;
  /** What it has, in few words. */
  detail: string;
  /** Why it is so, where that is worth words. */
  why?: string;
  /** When it came into this state. */
  at?: string;
  took?: string;
  to?: string;
}

/**
 * The stages that an agent carries out, in their order, and the reason that each fails with. What is said of one that is done is no
 * more than what an agent tells: not whether there was something to decrypt or to substitute, for instance.
 */
const AGENT_STAGES = [
  { id: 'finish', title: 'Finish', reason: 'BuildFailed', done: 'objects ready' },
  { id: 'validate', title: 'Validate', reason: 'ValidationFailed', done: 'accepted by the API server' },
  { id: 'apply', title: 'Apply', reason: 'ReconciliationFailed', done: 'written what differed' },
  { id: 'prune', title: 'Prune', reason: 'PruneFailed', done: 'deleted what left' },
  { id: 'wait', title: 'Health', reason: 'HealthCheckFailed', done: 'all healthy' },
] as const;

/** What keeps an attempt from beginning. */
const BEFORE = [
  'DependencyNotReady',
  'ArtifactFailed',
  'ClusterNotFound',
  'ClusterUnreachable',
  'AccessDenied',
  'AgentTooOld',
  'DatabaseRestored',
];

/** What is wrong with the cluster or its agent, so that nothing is sent there. */
const NOT_SENT = ['ClusterNotFound', 'AccessDenied', 'AgentTooOld'];

/** A source that an applier names, and the object where it is known. */
export interface NamedSource {
  id: ObjectId;
  object: Source | undefined;
}

export interface Known {
  object: Applier;
  sources: readonly NamedSource[];
  cluster: ClusterItem | undefined;
  /** The name of the cluster, where the object does not say it. */
  clusterName: string;
  history: Reconciliations | undefined;
}

export function stages(known: Known): StageView[] {
  const { history } = known;
  const attempt = history?.items[0];
  return [
    ...sourceStages(known),
    buildStage(known, attempt),
    clusterStage(known),
    ...AGENT_STAGES.map((stage) => agentStage(stage, known, attempt)),
  ];
}

function sourceStages({ sources }: Known): StageView[] {
  if (sources.length === 0)
    return [{ id: 'source', title: 'Source', state: 'unknown', detail: 'none named' }];
  return sources.map((source) => sourceStage(source, sources.length > 1));
}

function sourceStage({ id, object: source }: NamedSource, oneOfMany: boolean): StageView {
  const page = pageOf(id);
  const stage = {
    id: `source ${id.kind}/${id.namespace}/${id.name}`,
    title: 'Source',
    ...(page !== null && { to: page }),
  };
  const detail = `${id.kind} ${id.name}`;
  const which = oneOfMany ? `${id.name} ` : '';
  if (!source) return { ...stage, state: 'unknown', detail };
  const ready = conditionOf(source, 'Ready');
  const artifact = source.status?.artifact;
  const state = readyState(ready, source.spec?.suspend === true);
  return {
    ...stage,
    state,
    detail: artifact?.revision === undefined ? detail : which + shortRevision(artifact.revision),
    ...(artifact?.lastUpdateTime !== undefined && { at: artifact.lastUpdateTime }),
    ...(state === 'failing' && ready?.message !== undefined && { why: ready.message }),
  };
}

function buildStage({ object }: Known, attempt: Attempt | undefined): StageView {
  const stage = { id: 'build', title: 'Build' };
  const ready = conditionOf(object, 'Ready');
  const dispatched = attempt?.build != null;
  if (attempt?.reason === 'BuildFailed' && !dispatched) {
    return { ...stage, state: 'failing', detail: 'failed', why: attempt.message ?? '', at: attempt.started };
  }
  if (dispatched) {
    const digest = attempt.build?.replace(/^sha256:/, '').slice(0, 12) ?? '';
    return { ...stage, state: 'ok', detail: digest, at: attempt.started };
  }
  const reason = ready?.reason ?? '';
  if (BEFORE.includes(reason)) {
    const waits = reason === 'DependencyNotReady' || reason === 'ArtifactFailed';
    const why = waits && ready?.message !== undefined ? { why: ready.message } : {};
    return { ...stage, state: 'waiting', detail: waits ? words(reason) : 'not begun', ...why };
  }
  return {
    ...stage,
    state: attempt?.deletes ? 'skipped' : 'waiting',
    detail: attempt?.deletes ? 'deletes' : 'not begun',
  };
}

function words(reason: string): string {
  return reason === 'DependencyNotReady' ? 'waits for a dependency' : 'waits for the source';
}

function clusterStage({ object, cluster, clusterName }: Known): StageView {
  const stage = { id: 'cluster', title: 'Agent' };
  const ready = conditionOf(object, 'Ready');
  const name = cluster?.name ?? clusterName;
  const to = name === '' ? {} : { to: `/clusters/${encodeURIComponent(name)}` };
  if (ready && NOT_SENT.includes(ready.reason ?? '')) {
    return { ...stage, state: 'failing', detail: name || 'no cluster', why: ready.message ?? '', ...to };
  }
  if (!cluster) return { ...stage, state: 'unknown', detail: name || 'no cluster', ...to };
  const { connection } = cluster;
  if (!connection)
    return { ...stage, state: 'waiting', detail: name, why: 'Its agent was never connected.', ...to };
  return {
    ...stage,
    state: connection.connected ? 'ok' : 'away',
    detail: name,
    at: connection.since,
    ...(!connection.connected && { why: 'Its agent is not connected: what is to be done waits for it.' }),
    ...to,
  };
}

type AgentStage = (typeof AGENT_STAGES)[number];

function agentStage(stage: AgentStage, known: Known, attempt: Attempt | undefined): StageView {
  const { id, title } = stage;
  const view = { id, title };
  const underWay = known.history?.underWay;
  if (underWay && underWay.attempt === attempt?.attempt && attempt.reason == null)
    return underWayStage(stage, underWay);
  if (!attempt) return { ...view, state: 'waiting', detail: 'not begun' };
  const timings = attempt.timings.filter((each) => each.stage === id);
  const micros = timings.reduce((sum, each) => sum + each.micros, 0);
  const took = timings.length > 0 ? { took: duration(micros / 1000) } : {};
  if (attempt.reason == null) return { ...view, state: 'waiting', detail: 'sent to the agent' };
  if (attempt.reason === stage.reason && (id !== 'finish' || attempt.build != null)) {
    return { ...view, state: 'failing', detail: 'failed', why: attempt.message ?? '', ...took };
  }
  const failedAt = AGENT_STAGES.findIndex((each) => each.reason === attempt.reason);
  const index = AGENT_STAGES.findIndex((each) => each.id === id);
  if (
    attempt.reason !== 'ReconciliationSucceeded' &&
    (failedAt < 0 || index > failedAt || attempt.build == null)
  ) {
    return { ...view, state: 'skipped', detail: 'not reached' };
  }
  if (timings.length === 0)
    return { ...view, state: 'skipped', detail: id === 'wait' ? 'not waited for' : 'nothing to do' };
  // Where several steps have this stage, which took how long is said in place of what all did.
  const each = timings.map((timing) => `${stepOf(timing)} ${duration(timing.micros / 1000)}`);
  return { ...view, state: 'ok', detail: timings.length > 1 ? each.join(', ') : stage.done, ...took };
}

/** A step of a dispatch as people count them, with its label; nothing where an older agent did not tell. */
function stepOf({ step, label }: { step?: number | null; label?: string | null }): string {
  return step == null ? '' : `${step + 1} ${label ?? ''}`.trimEnd();
}

/** How long an attempt took, step by step. */
export function timingsOf(timings: Attempt['timings']): string {
  const steps = new Map<string, string[]>();
  for (const timing of timings) {
    const step = stepOf(timing);
    steps.set(step, [...(steps.get(step) ?? []), `${timing.stage} ${duration(timing.micros / 1000)}`]);
  }
  return [...steps].map(([step, took]) => (step === '' ? '' : `${step}: `) + took.join(', ')).join(' · ');
}

type UnderWay = NonNullable<Reconciliations['underWay']>;

function underWayStage({ id, title, done }: AgentStage, current: UnderWay): StageView {
  const order = AGENT_STAGES.map((each) => each.id as string);
  const here = order.indexOf(current.stage);
  const index = order.indexOf(id);
  const view = { id, title };
  // A step may wait before anything is pruned, and a dispatch may prune nothing: which steps there were is told at the end.
  if (index < here && id === 'prune') return { ...view, state: 'unknown', detail: 'not told yet' };
  if (index < here) return { ...view, state: 'ok', detail: done };
  if (index > here) return { ...view, state: 'waiting', detail: 'to come' };
  const what = id === 'apply' ? `${current.results.length} objects so far` : 'under way';
  return {
    ...view,
    state: 'progressing',
    detail: current.step == null ? what : `${stepOf(current)}: ${what}`,
  };
}

/** How long an attempt took, in words. */
export function tookOf(attempt: { took?: string | null }): string {
  const milliseconds = parseDuration(attempt.took ?? '');
  return milliseconds === null ? '' : duration(milliseconds);
}
