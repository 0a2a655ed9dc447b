/** What happened: of the whole fleet, or of one object. */
import { useInfiniteQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { useMemo } from 'react';
import { Link } from 'react-router';

import type { ObjectId } from '../api/kinds';
import type { EventFilter, EventItem } from '../api/queries';
import { events } from '../api/queries';
import { Asked, Empty } from './States';
import { Status } from './Status';
import { Message, Name } from './Text';
import { Age } from './Time';
import { pageOf } from './links';
import type { Column } from './VirtualTable';
import { VirtualTable } from './VirtualTable';

export function EventList({ filter, empty }: { filter: EventFilter; empty: ReactNode }): ReactNode {
  const answer = useInfiniteQuery(events(filter));
  const { fetchNextPage, hasNextPage, isFetchingNextPage } = answer;
  const rows = useMemo(() => answer.data?.pages.flatMap((page) => page.items) ?? [], [answer.data]);
  const more = hasNextPage && !isFetchingNextPage ? () => void fetchNextPage() : undefined;
  return (
    <Asked answer={answer} what="the events">
      {() =>
        rows.length === 0 ? (
          empty
        ) : (
          <VirtualTable
            label="Events"
            className="events"
            columns={COLUMNS}
            rows={rows}
            rowKey={keyOf}
            rowClass={(row) => (row.type === 'Warning' ? 'is-failing' : '')}
            onEnd={more}
          />
        )
      }
    </Asked>
  );
}

function keyOf({ cluster = '', object, type, reason, message, first }: EventItem): string {
  const { kind, namespace, name } = object;
  return [cluster, kind, namespace, name, type, reason, first, message.slice(0, 200)].join('\n');
}

const COLUMNS: readonly Column<EventItem>[] = [
  {
    id: 'last',
    title: 'Last',
    className: 'short',
    cell: (row) => (
      <>
        <Age at={row.last} />
        {row.count > 1 && <span className="dim"> ×{row.count.toLocaleString('en')}</span>}
      </>
    ),
  },
  {
    id: 'reason',
    title: 'What',
    className: 'mid',
    cell: (row) => <Status state={row.type === 'Warning' ? 'failing' : 'ok'} word={row.reason} />,
  },
  {
    id: 'object',
    title: 'Object',
    className: 'mid',
    cell: ({ object, cluster }) => {
      // What a cluster's Flux tells of is there, and not on the hub.
      if (cluster !== undefined) {
        return (
          <span>
            <span className="dim">{object.kind} </span>
            <Name>{object.name}</Name>
            <span className="dim"> in {cluster}</span>
          </span>
        );
      }
      const to = pageOf(object);
      const name = <Name>{object.name}</Name>;
      return (
        <span>
          <span className="dim">{object.kind} </span>
          {to === null ? name : <Link to={to}>{name}</Link>}
        </span>
      );
    },
  },
  { id: 'message', title: 'Message', className: 'wide', cell: (row) => <Message text={row.message} /> },
];

/** The events of one object. */
export function EventsOf({ id }: { id: ObjectId }): ReactNode {
  const answer = useInfiniteQuery(events(id));
  const rows = useMemo(
    // The hub looks for names that hold this one, and what a cluster's Flux tells is of another object.
    () =>
      answer.data?.pages
        .flatMap((page) => page.items)
        .filter((event) => event.object.name === id.name && event.cluster === undefined) ?? [],
    [answer.data, id.name],
  );
  return (
    <Asked answer={answer} what="the events">
      {() =>
        rows.length === 0 ? (
          <Empty title="Nothing happened lately">
            <p className="dim">The hub keeps events for a while, and no longer.</p>
          </Empty>
        ) : (
          <ul className="event-list">
            {rows.map((event) => (
              <li key={keyOf(event)}>
                <div className="condition-head">
                  <Status state={event.type === 'Warning' ? 'failing' : 'ok'} word={event.reason} />
                  <span className="dim">
                    <Age at={event.last} suffix=" ago" />
                    {event.count > 1 && (
                      <>
                        {' '}
                        · {event.count.toLocaleString('en')} times in <Age at={event.first} />
                      </>
                    )}
                  </span>
                </div>
                <Message text={event.message} />
              </li>
            ))}
          </ul>
        )
      }
    </Asked>
  );
}
