/** One source: what was fetched, and who uses it. */
import { useQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { Suspense, lazy } from 'react';
import { Link, useParams } from 'react-router';

import type { ObjectId, Source, SourceSpec } from '../api/kinds';
import { SOURCE_KINDS, addressOf, conditionOf } from '../api/kinds';
import { object } from '../api/queries';
import { commitAddress } from '../lib/words';
import { Actions } from '../ui/Actions';
import { AuditLink } from '../ui/AuditLink';
import { ApplierTable } from '../ui/ApplierTable';
import { Conditions } from '../ui/Conditions';
import { Details } from '../ui/Details';
import { EventsOf } from '../ui/EventList';
import { Asked, Empty, Loading } from '../ui/States';
import { Status, readyState } from '../ui/Status';
import { ExternalLink, Message, Name } from '../ui/Text';
import { Age } from '../ui/Time';
import { usePageTitle } from '../ui/usePageTitle';
import NotFoundPage from './NotFoundPage';

const Yaml = lazy(() => import('../ui/Yaml'));

export default function SourcePage(): ReactNode {
  const { kind = '', namespace = '', name = '' } = useParams();
  return SOURCE_KINDS.some((known) => known.kind === kind) ? (
    <Known id={{ kind, namespace, name }} />
  ) : (
    <NotFoundPage />
  );
}

function Known({ id }: { id: ObjectId }): ReactNode {
  usePageTitle(`${id.name} · ${id.kind}`);
  const answer = useQuery(object<Source>(id));
  return (
    <div className="page">
      <Asked page answer={answer} what={`${id.kind} ${id.namespace}/${id.name}`}>
        {(source) => <Body id={id} source={source} />}
      </Asked>
    </div>
  );
}

/** The source that a source is made of: of a chart, the repository that it is in. */
function sourcesOf(id: ObjectId, { sourceRef }: SourceSpec): ObjectId[] {
  if (!sourceRef) return [];
  return [{ kind: sourceRef.kind, namespace: sourceRef.namespace ?? id.namespace, name: sourceRef.name }];
}

function Body({ id, source }: { id: ObjectId; source: Source }): ReactNode {
  const { spec = {}, status = {} } = source;
  const ready = conditionOf(source, 'Ready');
  const suspended = spec.suspend === true;
  const commit = commitAddress(spec.url ?? '', status.artifact?.revision);
  const signed = conditionOf(source, 'SourceVerified');
  const verified = signed?.status === 'True' ? signed.message : undefined;
  const text = (value: string | undefined): ReactNode => <Name>{value ?? '–'}</Name>;
  const rows: [string, ReactNode][] = [
    ['Address', <ExternalLink key="url" address={addressOf(spec) || '–'} />],
    [
      'Reference',
      text(
        Object.entries(spec.ref ?? {})
          .map(([key, value]) => `${key}: ${value}`)
          .join(', ') || undefined,
      ),
    ],
    ['Interval', text(spec.interval)],
    [
      'Revision',
      <ExternalLink key="revision" address={commit ?? ''}>
        {status.artifact?.revision ?? '–'}
      </ExternalLink>,
    ],
    ...(verified ? [['Verified', <Message key="verified" text={verified} />] as [string, ReactNode]] : []),
    ['Digest', text(status.artifact?.digest)],
    ['Fetched', <Age key="at" at={status.artifact?.lastUpdateTime} suffix=" ago" />],
  ];
  return (
    <>
      <header className="page-head">
        <p className="crumbs">
          <Link to="/sources">Sources</Link> / {id.kind} / <Name>{id.namespace}</Name>
        </p>
        <h1>
          <Name>{id.name}</Name>
          <Status state={readyState(ready, suspended)} />
        </h1>
        <Actions id={id} object={source} sources={sourcesOf(id, spec)} />
      </header>
      {ready?.status === 'False' && !suspended && (
        <div className="notice is-failing">
          <p>
            <strong>{ready.reason}</strong> for <Age at={ready.lastTransitionTime} />
          </p>
          <Message text={ready.message ?? ''} />
        </div>
      )}
      <div className="columns">
        <section aria-labelledby="conditions">
          <h2 id="conditions">Conditions</h2>
          <Conditions object={source} />
        </section>
        <section aria-labelledby="details">
          <h2 id="details">Details</h2>
          <Details object={source} rows={rows} />
        </section>
      </div>
      <section aria-labelledby="users">
        <h2 id="users">Appliers that use it</h2>
        <ApplierTable
          filter={{ sourceKind: id.kind, sourceNamespace: id.namespace, source: id.name }}
          bounded
          empty={<Empty title="No applier uses it" />}
        />
      </section>
      <AuditLink id={id} />
      <section aria-labelledby="events">
        <h2 id="events">Events</h2>
        <EventsOf id={id} />
      </section>
      <details className="fold-section">
        <summary>YAML</summary>
        <Suspense fallback={<Loading what="the YAML" />}>
          <Yaml object={source} />
        </Suspense>
      </details>
    </>
  );
}
