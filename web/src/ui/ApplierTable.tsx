/** Appliers of any kind, as many as there are. */
import { useInfiniteQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { useMemo } from 'react';
import { Link } from 'react-router';

import type { ApplierFilter, ApplierItem } from '../api/queries';
import { appliers } from '../api/queries';
import { applierPage, pageOf } from './links';
import { Asked } from './States';
import { Status, readyState } from './Status';
import { Name, Revision } from './Text';
import { Age } from './Time';
import type { Column } from './VirtualTable';
import { VirtualTable } from './VirtualTable';

export function ApplierTable({
  filter,
  empty,
  bounded = false,
}: {
  filter: ApplierFilter;
  empty: ReactNode;
  bounded?: boolean;
}): ReactNode {
  const answer = useInfiniteQuery(appliers(filter));
  const { fetchNextPage, hasNextPage, isFetchingNextPage } = answer;
  const rows = useMemo(() => answer.data?.pages.flatMap((page) => page.items) ?? [], [answer.data]);
  const more = hasNextPage && !isFetchingNextPage ? () => void fetchNextPage() : undefined;
  return (
    <Asked answer={answer} what="appliers">
      {() =>
        rows.length === 0 ? (
          empty
        ) : (
          <VirtualTable
            label="Appliers"
            bounded={bounded}
            columns={COLUMNS}
            rows={rows}
            rowKey={(row) => `${row.kind}/${row.namespace}/${row.name}`}
            rowClass={(row) => `is-${readyState(row.ready, row.suspended)}`}
            onEnd={more}
          />
        )
      }
    </Asked>
  );
}

/** The first source, and how many more there are. */
function Sources({ of: [first, ...more] }: { of: ApplierItem['sources'] }): ReactNode {
  if (!first) return <span className="dim">–</span>;
  const to = pageOf(first);
  const name = <Name>{first.name}</Name>;
  return (
    <span title={[first, ...more].map((source) => `${source.kind} ${source.name}`).join(', ')}>
      {to === null ? name : <Link to={to}>{name}</Link>}
      {more.length > 0 && <span className="dim"> +{more.length}</span>}
    </span>
  );
}

const COLUMNS: readonly Column<ApplierItem>[] = [
  {
    id: 'name',
    title: 'Name',
    className: 'wide',
    cell: (row) => (
      <>
        <span className="dim">
          <Name>{row.namespace}</Name>/
        </span>
        <Link to={applierPage(row)} className="row-link">
          <Name>{row.name}</Name>
        </Link>
      </>
    ),
  },
  { id: 'kind', title: 'Kind', cell: (row) => <Name>{row.kind}</Name> },
  {
    id: 'state',
    title: 'State',
    cell: (row) => <Status state={readyState(row.ready, row.suspended)} />,
  },
  {
    id: 'since',
    title: 'For',
    className: 'short',
    cell: (row) => <Age at={row.ready?.since} />,
  },
  {
    id: 'cluster',
    title: 'Cluster',
    className: 'mid',
    cell: (row) =>
      row.cluster === '' ? (
        <span className="dim">–</span>
      ) : (
        <Link to={pageOf({ kind: 'Cluster', namespace: '', name: row.cluster }) ?? ''}>
          <Name>{row.cluster}</Name>
        </Link>
      ),
  },
  {
    id: 'source',
    title: 'Source',
    className: 'mid late',
    cell: ({ sources }) => <Sources of={sources} />,
  },
  {
    id: 'revision',
    title: 'Revision',
    className: 'mid late',
    cell: (row) => (
      <>
        <Revision>{row.revision}</Revision>
        {row.pinned && <span className="dim"> pinned</span>}
      </>
    ),
  },
  {
    id: 'message',
    title: 'Message',
    className: 'wide late',
    cell: (row) => (
      <span className="dim clip" title={row.ready?.message.slice(0, 1000)}>
        <bdi>{row.ready?.message.slice(0, 300)}</bdi>
      </span>
    ),
  },
];
