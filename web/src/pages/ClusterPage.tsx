/** One cluster: its agent, its versions, what is on it. */
import { useQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { Suspense, lazy } from 'react';
import { Link, useParams } from 'react-router';

import type { ObjectId } from '../api/kinds';
import type { ClusterItem } from '../api/queries';
import { clusterOf, object } from '../api/queries';
import { HubFailure } from '../api/errors';
import { ApplierTable } from '../ui/ApplierTable';
import { AuditLink } from '../ui/AuditLink';
import { Conditions } from '../ui/Conditions';
import { Details } from '../ui/Details';
import { EventsOf } from '../ui/EventList';
import { Asked, Empty, Failure, Loading } from '../ui/States';
import { Status } from '../ui/Status';
import { Name } from '../ui/Text';
import { usePageTitle } from '../ui/usePageTitle';
import { Connection } from './fleet/FleetPage';
import { Load } from './fleet/Load';
import { STATE_WORDS, clusterState } from './fleet/clusters';

const Yaml = lazy(() => import('../ui/Yaml'));

export default function ClusterPage(): ReactNode {
  const { name = '' } = useParams();
  usePageTitle(`${name} · Cluster`);
  const answer = useQuery(clusterOf(name));
  return (
    <div className="page">
      <Asked page answer={answer} what={`cluster ${name}`}>
        {(cluster) =>
          cluster === null ? (
            <Failure page error={new HubFailure('notFound', `There is no Cluster ${name} on this hub.`)} />
          ) : (
            <Body cluster={cluster} />
          )
        }
      </Asked>
    </div>
  );
}

function Body({ cluster }: { cluster: ClusterItem }): ReactNode {
  const { name } = cluster;
  const id: ObjectId = { kind: 'Cluster', namespace: '', name };
  const answer = useQuery(object(id));
  const state = clusterState(cluster);
  const rows: [string, ReactNode][] = [
    ['Agent', <Connection key="agent" cluster={cluster} />],
    ['Agent version', <Name key="version">{cluster.agentVersion ?? '–'}</Name>],
    ['Kubernetes', <Name key="kubernetes">{cluster.kubernetesVersion ?? '–'}</Name>],
    ['Appliers', <Load key="load" counts={cluster.appliers} />],
    [
      'Objects',
      <Link key="objects" to={`/search?cluster=${encodeURIComponent(name)}`}>
        {cluster.objects.toLocaleString('en')}
      </Link>,
    ],
  ];
  return (
    <>
      <header className="page-head">
        <p className="crumbs">
          <Link to="/">Fleet</Link>
        </p>
        <h1>
          <Name>{name}</Name>
          <Status state={state} word={STATE_WORDS[state]} />
        </h1>
      </header>
      <Asked answer={answer} what="its conditions">
        {(full) => (
          <div className="columns">
            <section aria-labelledby="conditions">
              <h2 id="conditions">Conditions</h2>
              <Conditions object={full} />
            </section>
            <section aria-labelledby="details">
              <h2 id="details">Details</h2>
              <Details object={full} rows={rows} />
            </section>
          </div>
        )}
      </Asked>
      <AuditLink id={id} />
      <section aria-labelledby="on-it">
        <h2 id="on-it">Appliers for it</h2>
        <ApplierTable
          filter={{ cluster: name }}
          bounded
          empty={
            <Empty title="Nothing is applied here yet">
              <p>
                A Kustomization with <code>spec.clusterRef.name: {name}</code> changes that.
              </p>
            </Empty>
          }
        />
      </section>
      <section aria-labelledby="events">
        <h2 id="events">Events</h2>
        <EventsOf id={id} />
      </section>
      <details className="fold-section">
        <summary>YAML</summary>
        <Suspense fallback={<Loading what="the YAML" />}>
          {answer.data && <Yaml object={answer.data} />}
        </Suspense>
      </details>
    </>
  );
}
