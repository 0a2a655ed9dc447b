/** One applier of any kind: the way from its sources to its objects, what was done, and what can be done. */
import * as Tabs from '@radix-ui/react-tabs';
import { useQueries, useQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { Suspense, lazy } from 'react';
import { Link, useNavigate, useParams } from 'react-router';

import type { Applier, ObjectId, Source } from '../../api/kinds';
import { KINDS, conditionOf } from '../../api/kinds';
import * as queries from '../../api/queries';
import { Actions } from '../../ui/Actions';
import { AuditLink } from '../../ui/AuditLink';
import { Conditions } from '../../ui/Conditions';
import { Details } from '../../ui/Details';
import { EventsOf } from '../../ui/EventList';
import { Asked, Empty, Loading } from '../../ui/States';
import { Status, readyState } from '../../ui/Status';
import { Message, Name, Revision } from '../../ui/Text';
import { Age } from '../../ui/Time';
import { applierPage, pageOf } from '../../ui/links';
import { usePageTitle } from '../../ui/usePageTitle';
import { DriftTab } from './Drift';
import { HistoryTab } from './History';
import { ObjectsTab } from './Objects';
import { Pipeline } from './Pipeline';
import { applierKind } from './kinds';
import { ownedObjects } from './objects';
import type { NamedSource } from './stages';
import { stages } from './stages';
import NotFoundPage from '../NotFoundPage';

const Yaml = lazy(() => import('../../ui/Yaml'));

const TABS = [
  ['overview', 'Overview'],
  ['objects', 'Objects'],
  ['history', 'Reconciliations'],
  ['drift', 'Drift'],
  ['events', 'Events'],
  ['yaml', 'YAML'],
] as const;

export default function ApplierPage(): ReactNode {
  const { kind = '', namespace = '', name = '' } = useParams();
  // Sources and Clusters have pages of their own. Of a kind that is not known here, the hub says whether it is an applier's.
  const isOther = KINDS.some((known) => known.kind === kind) && !applierKind(kind);
  return isOther ? <NotFoundPage /> : <OfKind id={{ kind, namespace, name }} />;
}

function OfKind({ id }: { id: ObjectId }): ReactNode {
  const { kind, namespace, name } = id;
  usePageTitle(`${name} · ${kind}`);
  const answer = useQuery(queries.object<Applier>(id));
  return (
    <div className="page">
      <Asked page answer={answer} what={`${kind} ${namespace}/${name}`}>
        {(object) => <Body id={id} object={object} />}
      </Asked>
    </div>
  );
}

function Body({ id, object }: { id: ObjectId; object: Applier }): ReactNode {
  const { kind, namespace, name } = id;
  const { tab = 'overview' } = useParams();
  const navigate = useNavigate();
  const history = useQuery(queries.reconciliations(id));
  const sources = useSources(id, object);
  // Views know for how long nobody has seen it.
  const row = useQuery(queries.applierRow(id));
  const unseen = row.data?.ready?.reason === 'NotSeen' ? row.data.ready : undefined;
  const ready = conditionOf(object, 'Ready');
  const suspended = object.spec?.suspend === true;
  const pinned = object.spec?.pin?.revision ?? object.metadata.annotations?.['fleet.roadstead.dev/pin'];
  const objects = ownedObjects(object, history.data);
  const base = applierPage(id);
  const known = TABS.some(([each]) => each === tab);
  return (
    <>
      <header className="page-head">
        <p className="crumbs">
          <Link to="/appliers">Appliers</Link> / <Name>{kind}</Name> / <Name>{namespace}</Name>
        </p>
        <h1>
          <Name>{name}</Name>
          <Status state={readyState(unseen ?? ready, suspended)} />
        </h1>
        <Actions id={id} object={object} sources={sources} />
      </header>
      {object.metadata.deletionTimestamp && (
        <p className="notice is-warning">
          It is being deleted since <Age at={object.metadata.deletionTimestamp} />.
        </p>
      )}
      {pinned !== undefined && (
        <p className="notice is-warning">
          It is pinned to <Revision>{pinned}</Revision> and does not follow its source.
        </p>
      )}
      {unseen && <p className="notice is-warning">It was {unseen.message}.</p>}
      {!unseen && ready?.status === 'False' && !suspended && (
        <div className="notice is-failing">
          <p>
            <strong>{ready.reason}</strong> for <Age at={ready.lastTransitionTime} />
          </p>
          <Message text={ready.message ?? ''} />
        </div>
      )}
      <Tabs.Root value={known ? tab : 'overview'} onValueChange={(to) => void navigate(`${base}/${to}`)}>
        <Tabs.List className="tabs" aria-label={`What of ${name}`}>
          {TABS.map(([value, title]) => (
            <Tabs.Trigger key={value} value={value}>
              {title}
              {value === 'objects' && <span className="count">{objects.length.toLocaleString('en')}</span>}
            </Tabs.Trigger>
          ))}
        </Tabs.List>
        <Tabs.Content value="overview" className="tab">
          <Overview
            id={id}
            object={object}
            sources={sources}
            history={history.data}
            objects={objects.length}
            base={base}
          />
        </Tabs.Content>
        <Tabs.Content value="objects" className="tab">
          <ObjectsTab objects={objects} />
        </Tabs.Content>
        <Tabs.Content value="history" className="tab">
          <Asked answer={history} what="the reconciliations">
            {(data) => <HistoryTab id={id} history={data} />}
          </Asked>
        </Tabs.Content>
        <Tabs.Content value="drift" className="tab">
          <DriftTab id={id} />
        </Tabs.Content>
        <Tabs.Content value="events" className="tab">
          <AuditLink id={id} />
          <EventsOf id={id} />
        </Tabs.Content>
        <Tabs.Content value="yaml" className="tab">
          <Suspense fallback={<Loading what="the YAML" />}>
            <Yaml object={object} />
          </Suspense>
        </Tabs.Content>
      </Tabs.Root>
    </>
  );
}

function Overview({
  id,
  object,
  sources,
  history,
  objects,
  base,
}: {
  id: ObjectId;
  object: Applier;
  sources: readonly ObjectId[];
  history: queries.Reconciliations | undefined;
  objects: number;
  base: string;
}): ReactNode {
  const named = useQueries({
    queries: sources.map((source) => queries.object<Source>(source)),
    combine: (answers): NamedSource[] =>
      sources.map((source, index) => ({ id: source, object: answers[index]?.data })),
  });
  const clusterName = useClusterName(id, object);
  const clusters = useQuery({ ...queries.clusterOf(clusterName), enabled: clusterName !== '' });
  const way = stages({
    object,
    sources: named,
    cluster: clusters.data ?? undefined,
    clusterName,
    history,
  });
  return (
    <>
      <Pipeline
        stages={way}
        said={conditionOf(object, 'Ready')?.message ?? ''}
        objects={objects}
        to={`${base}/objects`}
      />
      <div className="columns">
        <section aria-labelledby="conditions">
          <h2 id="conditions">Conditions</h2>
          <Conditions object={object} />
        </section>
        <section aria-labelledby="details">
          <h2 id="details">Details</h2>
          <Details object={object} rows={rowsOf(id, object, sources, clusterName)} />
        </section>
      </div>
      {history?.items.length === 0 && (
        <Empty title="It was not reconciled yet">
          <p className="dim">Its conditions say what it waits for.</p>
        </Empty>
      )}
    </>
  );
}

/** The cluster's name: the object says it, or names a kubeconfig, and then the list of the fleet knows it. */
function useClusterName(id: ObjectId, object: Applier): string {
  const said = object.spec?.kubeConfig ? '' : (object.spec?.clusterRef?.name ?? '');
  const row = useQuery({ ...queries.applierRow(id), enabled: said === '' });
  return said || (row.data?.cluster ?? '');
}

/** Its sources: its kind says where its spec names them, or the list of the fleet knows them. */
function useSources(id: ObjectId, object: Applier): readonly ObjectId[] {
  const said = applierKind(id.kind)?.sources?.(object);
  const row = useQuery({ ...queries.applierRow(id), enabled: said === undefined });
  return said ?? row.data?.sources ?? [];
}

function rowsOf(
  id: ObjectId,
  object: Applier,
  sources: readonly ObjectId[],
  cluster: string,
): [string, ReactNode][] {
  const { spec = {}, status = {} } = object;
  const text = (value: string | undefined): ReactNode =>
    value ? <Name>{value}</Name> : <span className="dim">–</span>;
  const details = applierKind(id.kind)?.details?.(object) ?? [];
  return [
    [
      'Cluster',
      cluster ? (
        <Link to={`/clusters/${encodeURIComponent(cluster)}`}>
          <Name>{cluster}</Name>
        </Link>
      ) : (
        text('')
      ),
    ],
    [sources.length > 1 ? 'Sources' : 'Source', <SourceLinks key="sources" of={sources} />],
    ...details.map(([title, value]): [string, ReactNode] => [title, text(value)]),
    ['Interval', text(spec.interval)],
    ['Timeout', text(spec.timeout)],
    [
      'Depends on',
      text(
        spec.dependsOn?.map(({ namespace, name }) => (namespace ? `${namespace}/${name}` : name)).join(', '),
      ),
    ],
    ['Applied revision', text(status.lastAppliedRevision)],
    ['Attempted revision', text(status.lastAttemptedRevision)],
  ];
}

function SourceLinks({ of }: { of: readonly ObjectId[] }): ReactNode {
  if (of.length === 0) return <span className="dim">–</span>;
  return of.map((source, index) => {
    const { kind, namespace, name } = source;
    const to = pageOf(source);
    const text = <Name>{`${kind} ${namespace}/${name}`}</Name>;
    return (
      <span key={`${kind}/${namespace}/${name}`}>
        {index > 0 && ', '}
        {to === null ? text : <Link to={to}>{text}</Link>}
      </span>
    );
  });
}
