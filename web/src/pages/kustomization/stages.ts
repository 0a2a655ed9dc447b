/** The way from a source to objects on a cluster: each stage's state, and how long it took. Pure. */
import type { Attempt, ClusterItem, Reconciliations } from '../../api/queries';
import type { Kustomization, Source } from '../../api/kinds';
import { conditionOf } from '../../api/kinds';
import { duration, parseDuration } from '../../lib/time';
import { shortRevision } from '../../lib/words';
import type { State } from '../../ui/Status';
import { readyState } from '../../ui/Status';

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

/** The stages that an agent carries out, in their order, and the reason that each fails with. */
const AGENT_STAGES = [
  { id: 'finish', title: 'Finish', reason: 'BuildFailed', done: 'nothing to decrypt or substitute' },
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
];

export interface Known {
  object: Kustomization;
  source: Source | undefined;
  cluster: ClusterItem | undefined;
  /** The name of the cluster, where the object does not say it. */
  clusterName: string;
  history: Reconciliations | undefined;
}

export function stages(known: Known): StageView[] {
  const { history } = known;
  const attempt = history?.items[0];
  return [
    sourceStage(known),
    buildStage(known, attempt),
    clusterStage(known),
    ...AGENT_STAGES.map((stage) => agentStage(stage, known, attempt)),
  ];
}

function sourceStage({ object, source }: Known): StageView {
  const reference = object.spec?.sourceRef;
  const namespace = reference?.namespace ?? object.metadata.namespace ?? '';
  const stage = { id: 'source', title: 'Source' };
  if (!reference) return { ...stage, state: 'unknown', detail: 'none named' };
  const to = `/sources/${[reference.kind, namespace, reference.name].map(encodeURIComponent).join('/')}`;
  const detail = `${reference.kind} ${reference.name}`;
  if (!source) return { ...stage, state: 'unknown', detail, to };
  const ready = conditionOf(source, 'Ready');
  const artifact = source.status?.artifact;
  const state = readyState(ready, source.spec?.suspend === true);
  return {
    ...stage,
    state,
    to,
    detail: artifact?.revision === undefined ? detail : shortRevision(artifact.revision),
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
  if (ready?.reason === 'ClusterNotFound' || ready?.reason === 'AccessDenied') {
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
    return underWayStage(stage, underWay.stage, known);
  if (!attempt) return { ...view, state: 'waiting', detail: 'not begun' };
  const timing = attempt.timings.find((each) => each.stage === id);
  const took = timing ? { took: duration(timing.micros / 1000) } : {};
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
  if (!timing)
    return { ...view, state: 'skipped', detail: id === 'wait' ? 'not waited for' : 'nothing to do' };
  return { ...view, state: 'ok', detail: stage.done, ...took };
}

function underWayStage({ id, title, done }: AgentStage, current: string, known: Known): StageView {
  const order = AGENT_STAGES.map((each) => each.id as string);
  const here = order.indexOf(current);
  const index = order.indexOf(id);
  const view = { id, title };
  if (index < here) return { ...view, state: 'ok', detail: done };
  if (index > here) return { ...view, state: 'waiting', detail: 'to come' };
  const results = known.history?.underWay?.results.length ?? 0;
  return {
    ...view,
    state: 'progressing',
    detail: id === 'apply' ? `${results} objects so far` : 'under way',
  };
}

/** How long an attempt took, in words. */
export function tookOf(attempt: { took?: string | null }): string {
  const milliseconds = parseDuration(attempt.took ?? '');
  return milliseconds === null ? '' : duration(milliseconds);
}
