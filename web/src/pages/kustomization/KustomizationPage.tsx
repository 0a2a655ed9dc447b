/** One Kustomization: the way from its source to its objects, what was done, and what can be done. */
import * as Tabs from '@radix-ui/react-tabs';
import { useQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { Suspense, lazy } from 'react';
import { Link, useNavigate, useParams } from 'react-router';

import type { Kustomization, ObjectId, Source } from '../../api/kinds';
import { conditionOf } from '../../api/kinds';
import * as queries from '../../api/queries';
import { Actions } from '../../ui/Actions';
import { Conditions } from '../../ui/Conditions';
import { Details } from '../../ui/Details';
import { EventsOf } from '../../ui/EventList';
import { Asked, Empty, Loading } from '../../ui/States';
import { Status, readyState } from '../../ui/Status';
import { Message, Name } from '../../ui/Text';
import { Age } from '../../ui/Time';
import { usePageTitle } from '../../ui/usePageTitle';
import { HistoryTab } from './History';
import { ObjectsTab } from './Objects';
import { Pipeline } from './Pipeline';
import { ownedObjects } from './objects';
import { stages } from './stages';

const Yaml = lazy(() => import('../../ui/Yaml'));

const TABS = [
  ['overview', 'Overview'],
  ['objects', 'Objects'],
  ['history', 'Reconciliations'],
  ['events', 'Events'],
  ['yaml', 'YAML'],
] as const;

export default function KustomizationPage(): ReactNode {
  const { namespace = '', name = '' } = useParams();
  const id: ObjectId = { kind: 'Kustomization', namespace, name };
  usePageTitle(`${name} · Kustomization`);
  const answer = useQuery(queries.object<Kustomization>(id));
  return (
    <div className="page">
      <Asked page answer={answer} what={`Kustomization ${namespace}/${name}`}>
        {(object) => <Body id={id} object={object} />}
      </Asked>
    </div>
  );
}

function Body({ id, object }: { id: ObjectId; object: Kustomization }): ReactNode {
  const { namespace, name } = id;
  const { tab = 'overview' } = useParams();
  const navigate = useNavigate();
  const history = useQuery(queries.reconciliations(namespace, name));
  const ready = conditionOf(object, 'Ready');
  const suspended = object.spec?.suspend === true;
  const objects = ownedObjects(object, history.data);
  const base = `/kustomizations/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
  const known = TABS.some(([each]) => each === tab);
  return (
    <>
      <header className="page-head">
        <p className="crumbs">
          <Link to="/kustomizations">Kustomizations</Link> / <Name>{namespace}</Name>
        </p>
        <h1>
          <Name>{name}</Name>
          <Status state={readyState(ready, suspended)} />
        </h1>
        <Actions id={id} object={object} />
      </header>
      {object.metadata.deletionTimestamp && (
        <p className="notice is-warning">
          It is being deleted since <Age at={object.metadata.deletionTimestamp} />.
        </p>
      )}
      {ready?.status === 'False' && !suspended && (
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
          <Overview object={object} history={history.data} objects={objects.length} base={base} />
        </Tabs.Content>
        <Tabs.Content value="objects" className="tab">
          <ObjectsTab objects={objects} />
        </Tabs.Content>
        <Tabs.Content value="history" className="tab">
          <Asked answer={history} what="the reconciliations">
            {(data) => <HistoryTab history={data} />}
          </Asked>
        </Tabs.Content>
        <Tabs.Content value="events" className="tab">
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
  object,
  history,
  objects,
  base,
}: {
  object: Kustomization;
  history: queries.Reconciliations | undefined;
  objects: number;
  base: string;
}): ReactNode {
  const reference = object.spec?.sourceRef;
  const sourceId: ObjectId = {
    kind: reference?.kind ?? '',
    namespace: reference?.namespace ?? object.metadata.namespace ?? '',
    name: reference?.name ?? '',
  };
  const source = useQuery({ ...queries.object<Source>(sourceId), enabled: reference !== undefined });
  const clusterName = useClusterName(object);
  const clusters = useQuery({ ...queries.clusterOf(clusterName), enabled: clusterName !== '' });
  const way = stages({
    object,
    source: source.data,
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
          <Details object={object} rows={rowsOf(object, clusterName)} />
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
function useClusterName(object: Kustomization): string {
  const { namespace = '', name } = object.metadata;
  const said = object.spec?.kubeConfig ? '' : (object.spec?.clusterRef?.name ?? '');
  const row = useQuery({ ...queries.kustomizationRow(namespace, name), enabled: said === '' });
  return said || (row.data?.cluster ?? '');
}

function rowsOf(object: Kustomization, cluster: string): [string, ReactNode][] {
  const { spec = {}, status = {} } = object;
  const text = (value: string | undefined): ReactNode =>
    value ? <Name>{value}</Name> : <span className="dim">–</span>;
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
    ['Path', text(spec.path)],
    ['Interval', text(spec.interval)],
    ['Timeout', text(spec.timeout)],
    ['Prunes', spec.prune ? 'yes' : 'no'],
    ['Waits for health', spec.wait ? 'yes' : 'no'],
    ['Target namespace', text(spec.targetNamespace)],
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
