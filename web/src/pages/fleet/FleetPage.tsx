/** All clusters: how they are, what fails on them and since when. */
import { useQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { useCallback, useMemo, useState } from 'react';
import { Link, Navigate } from 'react-router';

import type { ClusterItem, ClusterPage } from '../../api/queries';
import { clusters } from '../../api/queries';
import { useMaySeeClusters } from '../../api/may';
import { count } from '../../lib/words';
import { useFilters } from '../../lib/useFilters';
import { Chips, Choice, SearchField } from '../../ui/Fields';
import { Asked, Empty } from '../../ui/States';
import { Status } from '../../ui/Status';
import { Name } from '../../ui/Text';
import { Age } from '../../ui/Time';
import { usePageTitle } from '../../ui/usePageTitle';
import type { Column } from '../../ui/VirtualTable';
import { VirtualTable } from '../../ui/VirtualTable';
import { Icon } from '../../ui/icons';
import { Labels } from '../../ui/Labels';
import type { FleetRow, Group, Shown } from './clusters';
import { STATES, STATE_WORDS, counts, fleetRows, labelKeys, labelPairs, total } from './clusters';
import { Load } from './Load';

export function FleetPage(): ReactNode {
  usePageTitle('Fleet');
  const answer = useQuery(clusters);
  // Who may see no cluster begins with what deploys to them.
  if (!useMaySeeClusters()) return <Navigate to="/appliers" replace />;
  return (
    <div className="page fills">
      <Asked page answer={answer} what="the fleet">
        {(page) => <Fleet page={page} />}
      </Asked>
    </div>
  );
}

const NAMES = ['q', 'state', 'sort', 'group'] as const;

function Fleet({ page: { items } }: { page: ClusterPage }): ReactNode {
  const [view, change] = useFilters(NAMES);
  const [folded, setFolded] = useState<ReadonlySet<string>>(new Set());
  const rows = useMemo(() => fleetRows(items, view, folded), [items, view, folded]);
  const states = useMemo(() => counts(items), [items]);
  const groups = useMemo(() => labelKeys(items), [items]);
  const pairs = useMemo(() => labelPairs(items), [items]);
  const setQ = useCallback((q: string) => change({ q }), [change]);
  const fold = useCallback((group: string) => {
    setFolded((held) => {
      const next = new Set(held);
      if (!next.delete(group)) next.add(group);
      return next;
    });
  }, []);
  const shown = rows.reduce((sum, row) => sum + ('cluster' in row ? 1 : 0), 0);
  return (
    <>
      <header className="page-head">
        <h1>Fleet</h1>
        <p className="dim">
          {count(items.length, 'cluster')},{' '}
          {count(
            items.reduce((sum, item) => sum + total(item), 0),
            'applier',
          )}
          ,{' '}
          {count(
            items.reduce((sum, item) => sum + item.objects, 0),
            'object',
          )}
        </p>
      </header>
      {items.length === 0 ? (
        <NoClusters />
      ) : (
        <>
          <div className="filters">
            <Chips
              label="State"
              value={view.state}
              onChange={(state) => change({ state })}
              chips={STATES.filter((state) => states[state] > 0 || state === view.state).map((state) => ({
                value: state,
                title: STATE_WORDS[state],
                state,
                count: states[state],
              }))}
            />
            <SearchField
              label="Filter by name, version or label (region=north)"
              value={view.q}
              onChange={setQ}
              suggestions={pairs}
            />
            <Choice
              label="Group by"
              value={view.group}
              onChange={(group) => change({ group })}
              options={[
                ['', 'nothing'],
                ['state', 'state'],
                ['version', 'Kubernetes version'],
                ...groups.map((key) => [`label:${key}`, key] as const),
              ]}
            />
            <Choice
              label="Order"
              value={view.sort}
              onChange={(sort) => change({ sort })}
              options={[
                ['', 'worst first'],
                ['name', 'name'],
              ]}
            />
          </div>
          <p className="unseen" role="status">
            {count(shown, 'cluster')} shown
          </p>
          {rows.length === 0 ? (
            <Empty title="No cluster is like that">
              <button type="button" onClick={() => change({ q: '', state: '' })}>
                Show all {count(items.length, 'cluster')}
              </button>
            </Empty>
          ) : (
            <VirtualTable
              label="Clusters"
              className="fleet"
              columns={COLUMNS}
              rows={rows}
              rowKey={keyOf}
              rowClass={(row) => ('state' in row ? `is-${row.state}` : '')}
              heading={(row) =>
                'group' in row ? <Heading row={row} folded={folded.has(row.group)} fold={fold} /> : null
              }
            />
          )}
        </>
      )}
    </>
  );
}

function keyOf(row: FleetRow): string {
  return 'group' in row ? `group ${row.group}` : row.cluster.name;
}

function Heading({
  row: { group, clusters: size, states },
  folded,
  fold,
}: {
  row: Group;
  folded: boolean;
  fold: (group: string) => void;
}): ReactNode {
  return (
    <button type="button" className="fold" aria-expanded={!folded} onClick={() => fold(group)}>
      <Icon name="chevron" />
      <Name>{group}</Name>
      <span className="dim">{count(size, 'cluster')}</span>
      {STATES.filter((state) => state !== 'ok' && states[state]).map((state) => (
        <Status
          key={state}
          state={state}
          word={`${states[state] ?? 0} ${STATE_WORDS[state].toLowerCase()}`}
        />
      ))}
    </button>
  );
}

const cell = (draw: (row: Shown) => ReactNode) => {
  return (row: FleetRow): ReactNode => ('cluster' in row ? draw(row) : null);
};

const COLUMNS: readonly Column<FleetRow>[] = [
  {
    id: 'name',
    title: 'Cluster',
    className: 'wide',
    cell: cell(({ cluster }) => (
      <>
        <Link to={`/clusters/${encodeURIComponent(cluster.name)}`} className="row-link">
          <Name>{cluster.name}</Name>
        </Link>
        <Labels labels={cluster.labels} most={3} />
      </>
    )),
  },
  {
    id: 'state',
    title: 'Health',
    cell: cell(({ state }) => <Status state={state} word={STATE_WORDS[state]} />),
  },
  {
    id: 'load',
    title: 'Appliers',
    className: 'load',
    cell: cell(({ cluster }) => <Load counts={cluster.appliers} />),
  },
  {
    id: 'failing',
    title: 'What fails',
    className: 'wide',
    cell: cell(({ cluster }) => <Failing cluster={cluster} />),
  },
  {
    id: 'connection',
    title: 'Agent',
    className: 'mid',
    cell: cell(({ cluster }) => <Connection cluster={cluster} />),
  },
  {
    id: 'version',
    title: 'Kubernetes',
    className: 'mid',
    cell: cell(({ cluster }) => <Name>{cluster.kubernetesVersion ?? '–'}</Name>),
  },
  {
    id: 'agent',
    title: 'Agent version',
    className: 'late',
    cell: cell(({ cluster }) => <Name>{cluster.agentVersion ?? '–'}</Name>),
  },
  {
    id: 'objects',
    title: 'Objects',
    className: 'late number',
    cell: cell(({ cluster }) => cluster.objects.toLocaleString('en')),
  },
];

function Failing({ cluster }: { cluster: ClusterItem }): ReactNode {
  const { failing, ready, connection } = cluster;
  const worst = failing[0];
  if (worst) {
    const more = failing.length - 1;
    return (
      <span className="failing-what">
        <Link to={`/appliers?cluster=${encodeURIComponent(cluster.name)}&state=False`}>
          {worst.count > 1 && `${worst.count} × `}
          {worst.reason}
        </Link>{' '}
        <span className="dim">
          for <Age at={worst.since} />
          {more > 0 && `, ${count(more, 'other reason')}`}
        </span>
      </span>
    );
  }
  if (ready && ready.status !== 'True' && !connection?.connected) {
    return (
      <span className="dim clip" title={ready.message.slice(0, 500)}>
        <bdi>{ready.message.slice(0, 200)}</bdi>
      </span>
    );
  }
  return <span className="dim">–</span>;
}

export function Connection({ cluster: { connection } }: { cluster: ClusterItem }): ReactNode {
  if (!connection) return <Status state="waiting" word="Never connected" />;
  return (
    <span className="connection">
      <Status
        state={connection.connected ? 'ok' : 'away'}
        word={connection.connected ? 'Connected' : 'Away'}
      />{' '}
      <span className="dim">
        <Age at={connection.since} />
      </span>
    </span>
  );
}

function NoClusters(): ReactNode {
  return (
    <Empty title="There are no clusters yet">
      <p>Register one, and start its agent with a join token:</p>
      <pre>
        <code>{'roadstead cluster join edge-1 | kubectl --kubeconfig ~/.kube/edge-1 apply -f -'}</code>
      </pre>
      <p className="dim">It appears here as soon as the hub knows of it.</p>
    </Empty>
  );
}
