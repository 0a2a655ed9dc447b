/** Any object on any cluster. */
import { useInfiniteQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { useCallback, useMemo } from 'react';
import { Link } from 'react-router';

import type { InventoryItem } from '../api/queries';
import { inventory } from '../api/queries';
import { useFilters } from '../lib/useFilters';
import { SearchField } from '../ui/Fields';
import { Labels } from '../ui/Labels';
import { applierPage, pageOf } from '../ui/links';
import { Asked, Empty } from '../ui/States';
import { Name } from '../ui/Text';
import { Status, healthState } from '../ui/Status';
import { usePageTitle } from '../ui/usePageTitle';
import type { Column } from '../ui/VirtualTable';
import { VirtualTable } from '../ui/VirtualTable';

const NAMES = ['name', 'kind', 'namespace', 'cluster', 'labels'] as const;
const KINDS = [
  'ConfigMap',
  'CronJob',
  'DaemonSet',
  'Deployment',
  'Ingress',
  'Job',
  'Namespace',
  'PersistentVolumeClaim',
  'Service',
  'ServiceAccount',
  'StatefulSet',
];

export default function SearchPage(): ReactNode {
  usePageTitle('Search');
  const [filter, change] = useFilters(NAMES);
  const setName = useCallback((name: string) => change({ name }), [change]);
  const setKind = useCallback((kind: string) => change({ kind }), [change]);
  const setNamespace = useCallback((namespace: string) => change({ namespace }), [change]);
  const setCluster = useCallback((cluster: string) => change({ cluster }), [change]);
  const setLabels = useCallback((labels: string) => change({ labels }), [change]);
  return (
    <div className="page fills">
      <header className="page-head">
        <h1>Search</h1>
        <p className="dim">All objects that appliers own, on all clusters</p>
      </header>
      <div className="filters is-search" role="search">
        <SearchField label="A part of the name" value={filter.name} onChange={setName} focused />
        <SearchField label="Kind" value={filter.kind} onChange={setKind} suggestions={KINDS} />
        <SearchField label="Labels (app=web,tier)" value={filter.labels} onChange={setLabels} />
        <SearchField label="Namespace" value={filter.namespace} onChange={setNamespace} />
        <SearchField label="Cluster" value={filter.cluster} onChange={setCluster} />
      </div>
      <Found filter={filter} />
    </div>
  );
}

function Found({ filter }: { filter: Record<(typeof NAMES)[number], string> }): ReactNode {
  const answer = useInfiniteQuery(inventory(filter));
  const { fetchNextPage, hasNextPage, isFetchingNextPage } = answer;
  const rows = useMemo(() => answer.data?.pages.flatMap((page) => page.items) ?? [], [answer.data]);
  const more = hasNextPage && !isFetchingNextPage ? () => void fetchNextPage() : undefined;
  return (
    <Asked answer={answer} what="objects">
      {() => (
        <>
          <p className="dim" role="status">
            {rows.length.toLocaleString('en')}
            {hasNextPage ? ' or more' : ''} found
          </p>
          {rows.length === 0 ? (
            <Empty title="No object is like that">
              <p className="dim">
                Kind, namespace and cluster are whole names; of the name a part is enough.
              </p>
            </Empty>
          ) : (
            <VirtualTable label="Objects" columns={COLUMNS} rows={rows} rowKey={keyOf} onEnd={more} />
          )}
        </>
      )}
    </Asked>
  );
}

function keyOf(row: InventoryItem): string {
  return [row.cluster, row.group, row.kind, row.namespace, row.name].join('\n');
}

function Health({ row: { intended, health } }: { row: InventoryItem }): ReactNode {
  if (intended) return <Status state="progressing" word="Being applied" />;
  if (health == null) {
    return (
      <span title="It was applied. Its health is not checked (spec.wait of its Kustomization is not set).">
        <Status state="unknown" word="Not checked" />
      </span>
    );
  }
  const { state, word, why } = healthState(health);
  return (
    <span title={why.slice(0, 1000) || undefined}>
      <Status state={state} word={word} />
    </span>
  );
}

const COLUMNS: readonly Column<InventoryItem>[] = [
  { id: 'kind', title: 'Kind', className: 'mid', cell: (row) => <Name>{row.kind}</Name> },
  {
    id: 'name',
    title: 'Name',
    className: 'wide',
    cell: ({ applier, ...row }) =>
      applier.name === '' ? (
        <Name>{row.name}</Name>
      ) : (
        <Link className="row-link" to={`${applierPage(applier)}/objects?q=${encodeURIComponent(row.name)}`}>
          <Name>{row.name}</Name>
        </Link>
      ),
  },
  {
    id: 'labels',
    title: 'Labels',
    className: 'mid late',
    cell: (row) => <Labels labels={row.labels} most={2} />,
  },
  {
    id: 'namespace',
    title: 'Namespace',
    className: 'mid',
    cell: (row) => <Name>{row.namespace || '–'}</Name>,
  },
  {
    id: 'cluster',
    title: 'Cluster',
    className: 'mid',
    cell: (row) =>
      row.cluster === '' ? (
        <span className="dim">gone</span>
      ) : (
        <Link to={pageOf({ kind: 'Cluster', namespace: '', name: row.cluster }) ?? ''}>
          <Name>{row.cluster}</Name>
        </Link>
      ),
  },
  {
    id: 'owner',
    title: 'Applier',
    className: 'mid late',
    cell: ({ applier }) =>
      applier.name === '' ? (
        <span className="dim">gone</span>
      ) : (
        <span>
          <span className="dim">{applier.kind} </span>
          <Link to={applierPage(applier)}>
            <Name>{`${applier.namespace}/${applier.name}`}</Name>
          </Link>
        </span>
      ),
  },
  {
    id: 'health',
    title: 'Health',
    cell: (row) => <Health row={row} />,
  },
];
