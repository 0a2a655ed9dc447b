/** What Alerts tell: incidents, what Silences keep back, and what was sent of them and of everything else. */
import { useInfiniteQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { useCallback, useMemo } from 'react';
import { Link } from 'react-router';

import type { DeliveryFilter, DeliveryItem, IncidentFilter, IncidentItem } from '../api/queries';
import { deliveries, incidents } from '../api/queries';
import { useFilters } from '../lib/useFilters';
import { Chips, SearchField } from '../ui/Fields';
import { Asked, Empty } from '../ui/States';
import type { State } from '../ui/Status';
import { Status } from '../ui/Status';
import { Message, Name } from '../ui/Text';
import { Age } from '../ui/Time';
import { pageOf } from '../ui/links';
import { usePageTitle } from '../ui/usePageTitle';
import { Silences } from './Silences';

const NAMES = ['namespace', 'alert', 'open', 'state'] as const;
const NONE = Object.fromEntries(NAMES.map((name) => [name, '']));

export default function AlertsPage(): ReactNode {
  usePageTitle('Alerts');
  const [{ namespace, alert, open, state }, change] = useFilters(NAMES);
  const setNamespace = useCallback((namespace: string) => change({ namespace }), [change]);
  const setAlert = useCallback((alert: string) => change({ alert }), [change]);
  const clear = useCallback(() => change(NONE), [change]);
  return (
    <div className="page">
      <header className="page-head">
        <h1>Alerts</h1>
        <p className="dim">What Alerts tell of, and whether it arrived</p>
      </header>
      <div className="filters">
        <SearchField label="Namespace" value={namespace} onChange={setNamespace} />
        <SearchField label="Alert" value={alert} onChange={setAlert} />
        <Chips
          label="Incidents"
          value={open}
          onChange={(open) => change({ open })}
          chips={[{ value: 'true', title: 'Open incidents', state: 'failing' }]}
        />
        <Chips
          label="Messages"
          value={state}
          onChange={(state) => change({ state })}
          chips={[
            { value: 'waiting', title: 'Waiting', state: 'waiting' },
            { value: 'failed', title: 'Failed', state: 'failing' },
            { value: 'sent', title: 'Sent', state: 'ok' },
          ]}
        />
      </div>
      <h2 id="incidents">Incidents</h2>
      <Incidents filter={{ namespace, alert, open }} clear={clear} />
      <h2 id="silences">Silences</h2>
      <Silences namespace={namespace} />
      <h2 id="messages">Messages</h2>
      <Deliveries filter={{ namespace, alert, state }} clear={clear} />
    </div>
  );
}

function Incidents({ filter, clear }: { filter: IncidentFilter; clear: () => void }): ReactNode {
  const answer = useInfiniteQuery(incidents(filter));
  const rows = useMemo(() => answer.data?.pages.flatMap((page) => page.items) ?? [], [answer.data]);
  const none = (
    <Empty title={isNarrowed(filter) ? 'No incident is like that' : 'There are no incidents'}>
      {isNarrowed(filter) ? (
        <ShowAll clear={clear} />
      ) : (
        <p className="dim">Alerts with spec.group tell failures that have one cause as one incident.</p>
      )}
    </Empty>
  );
  return (
    <Asked answer={answer} what="the incidents">
      {() => (
        <List label="Incidents" rows={rows} none={none} more={moreOf(answer)}>
          {(incident) => <Incident key={incident.id} incident={incident} />}
        </List>
      )}
    </Asked>
  );
}

/** Only what is well is resolved. */
function endOf({ lapsed }: IncidentItem): string {
  return lapsed > 0 ? 'Over' : 'Resolved';
}

function Incident({ incident }: { incident: IncidentItem }): ReactNode {
  const { alert, object, reason, message, opened, told, ended, names } = incident;
  const isOver = ended != null;
  const [objects, clusters] = isOver
    ? [incident.failed, incident.clusters]
    : [incident.failing, incident.failingClusters];
  const more = (clusters || objects) - names.length;
  return (
    <li>
      <div className="condition-head">
        <span>
          <Status state={isOver ? 'ok' : 'failing'} word={isOver ? endOf(incident) : reason} />{' '}
          {isOver ? 'It failed' : 'Fails'} {extent(objects, clusters)}
        </span>
        <span className="dim">
          <Age at={opened} suffix=" ago" />
          {isOver && (
            <>
              {' '}
              · over <Age at={ended} suffix=" ago" />
            </>
          )}
        </span>
      </div>
      <p className="dim">
        first <Target object={object} /> · by Alert <Name>{`${alert.namespace}/${alert.name}`}</Name>
        {told == null && ' · not told yet'}
      </p>
      <Message text={message} />
      <p className="dim">
        {names.join(', ')}
        {more > 0 && ` and ${more.toLocaleString('en')} more`}
      </p>
    </li>
  );
}

/** On how much something fails. */
function extent(objects: number, clusters: number): string {
  const many = (count: number, what: string): string =>
    `${count.toLocaleString('en')} ${what}${count === 1 ? '' : 's'}`;
  if (clusters === 0) return `for ${many(objects, 'object')}`;
  const on = `on ${many(clusters, 'cluster')}`;
  return objects === clusters ? on : `${on} (${many(objects, 'object')})`;
}

const STATES: Record<string, [State, string]> = {
  waiting: ['waiting', 'Waiting'],
  sent: ['ok', 'Sent'],
  failed: ['failing', 'Failed'],
};

function Deliveries({ filter, clear }: { filter: DeliveryFilter; clear: () => void }): ReactNode {
  const answer = useInfiniteQuery(deliveries(filter));
  const rows = useMemo(() => answer.data?.pages.flatMap((page) => page.items) ?? [], [answer.data]);
  const none = isNarrowed(filter) ? (
    <Empty title="No message is like that">
      <ShowAll clear={clear} />
    </Empty>
  ) : (
    <Empty title="Nothing was sent lately" />
  );
  return (
    <Asked answer={answer} what="the messages">
      {() => (
        <List label="Messages" rows={rows} none={none} more={moreOf(answer)}>
          {(delivery) => <Delivery key={delivery.id} delivery={delivery} />}
        </List>
      )}
    </Asked>
  );
}

function Delivery({ delivery }: { delivery: DeliveryItem }): ReactNode {
  const { alert, object, provider, attempts, reason, message, made, error } = delivery;
  const [state, word] = STATES[delivery.state] ?? ['unknown', delivery.state];
  return (
    <li>
      <div className="condition-head">
        <span>
          <Status state={state} word={word} /> {reason} <Target object={object} />
        </span>
        <span className="dim">
          <Age at={made} suffix=" ago" />
          {attempts > 1 && ` · ${attempts.toLocaleString('en')} attempts`}
        </span>
      </div>
      <p className="dim">
        by Alert <Name>{`${alert.namespace}/${alert.name}`}</Name>
        {provider !== '' && (
          <>
            {' '}
            to Provider <Name>{provider}</Name>
          </>
        )}
      </p>
      <Message text={message} />
      {error !== '' && <p className="notice is-failing">{error}</p>}
    </li>
  );
}

/** Where an object has a page, its name leads there. */
function Target({ object }: { object: IncidentItem['object'] }): ReactNode {
  const to = pageOf(object);
  const name = <Name>{`${object.namespace}/${object.name}`}</Name>;
  return (
    <>
      <span className="dim">{object.kind} </span>
      {to === null ? name : <Link to={to}>{name}</Link>}
    </>
  );
}

function List<T>({
  label,
  rows,
  none,
  more,
  children,
}: {
  label: string;
  rows: readonly T[];
  none: ReactNode;
  more: (() => void) | null;
  children: (row: T) => ReactNode;
}): ReactNode {
  if (rows.length === 0) return none;
  return (
    <>
      <ul className="event-list" aria-label={label}>
        {rows.map(children)}
      </ul>
      {more && (
        <p>
          <button type="button" onClick={more}>
            Show older ones
          </button>
        </p>
      )}
    </>
  );
}

function ShowAll({ clear }: { clear: () => void }): ReactNode {
  return (
    <button type="button" onClick={clear}>
      Show all
    </button>
  );
}

function isNarrowed(filter: object): boolean {
  return Object.values(filter).some(Boolean);
}

/** Asks for what is older, where there is any and it is not on its way. */
function moreOf(answer: {
  hasNextPage: boolean;
  isFetchingNextPage: boolean;
  fetchNextPage: () => unknown;
}): (() => void) | null {
  return answer.hasNextPage && !answer.isFetchingNextPage ? () => void answer.fetchNextPage() : null;
}
