/** Kustomizations, as many as there are. */
import { useInfiniteQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { useMemo } from 'react';
import { Link } from 'react-router';

import type { KustomizationFilter, KustomizationItem } from '../api/queries';
import { kustomizations } from '../api/queries';
import { pageOf } from './links';
import { Asked } from './States';
import { Status, readyState } from './Status';
import { Name, Revision } from './Text';
import { Age } from './Time';
import type { Column } from './VirtualTable';
import { VirtualTable } from './VirtualTable';

export function KustomizationTable({
  filter,
  empty,
  bounded = false,
}: {
  filter: KustomizationFilter;
  empty: ReactNode;
  bounded?: boolean;
}): ReactNode {
  const answer = useInfiniteQuery(kustomizations(filter));
  const { fetchNextPage, hasNextPage, isFetchingNextPage } = answer;
  const rows = useMemo(() => answer.data?.pages.flatMap((page) => page.items) ?? [], [answer.data]);
  const more = hasNextPage && !isFetchingNextPage ? () => void fetchNextPage() : undefined;
  return (
    <Asked answer={answer} what="Kustomizations">
      {() =>
        rows.length === 0 ? (
          empty
        ) : (
          <VirtualTable
            label="Kustomizations"
            bounded={bounded}
            columns={COLUMNS}
            rows={rows}
            rowKey={(row) => `${row.namespace}/${row.name}`}
            rowClass={(row) => `is-${readyState(row.ready, row.suspended)}`}
            onEnd={more}
          />
        )
      }
    </Asked>
  );
}

const COLUMNS: readonly Column<KustomizationItem>[] = [
  {
    id: 'name',
    title: 'Kustomization',
    className: 'wide',
    cell: (row) => (
      <>
        <span className="dim">
          <Name>{row.namespace}</Name>/
        </span>
        <Link to={pageOf({ ...row, kind: 'Kustomization' }) ?? ''} className="row-link">
          <Name>{row.name}</Name>
        </Link>
      </>
    ),
  },
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
    cell: ({ source }) => (
      <Link to={pageOf(source) ?? ''}>
        <Name>{source.name}</Name>
      </Link>
    ),
  },
  {
    id: 'revision',
    title: 'Revision',
    className: 'mid late',
    cell: (row) => <Revision>{row.revision}</Revision>,
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
