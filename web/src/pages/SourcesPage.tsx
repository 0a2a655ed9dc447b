/** Where manifests come from. */
import { useQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { useCallback, useMemo } from 'react';
import { Link } from 'react-router';

import { SOURCE_KINDS } from '../api/kinds';
import type { SourceItem } from '../api/queries';
import { sources } from '../api/queries';
import { useFilters } from '../lib/useFilters';
import { count, matches } from '../lib/words';
import { Chips, Choice, SearchField } from '../ui/Fields';
import { pageOf } from '../ui/links';
import { Asked, Empty } from '../ui/States';
import type { State } from '../ui/Status';
import { Status, WORDS, readyState } from '../ui/Status';
import { ExternalLink, Name, Revision } from '../ui/Text';
import { Age } from '../ui/Time';
import { usePageTitle } from '../ui/usePageTitle';
import type { Column } from '../ui/VirtualTable';
import { VirtualTable } from '../ui/VirtualTable';

export default function SourcesPage(): ReactNode {
  usePageTitle('Sources');
  const answer = useQuery(sources);
  return (
    <div className="page fills">
      <Asked page answer={answer} what="the sources">
        {(items) => <Sources items={items} />}
      </Asked>
    </div>
  );
}

const NAMES = ['q', 'kind', 'state'] as const;

function stateOf(source: SourceItem): State {
  return readyState(source.ready, source.suspended);
}

function Sources({ items }: { items: readonly SourceItem[] }): ReactNode {
  const [filters, change] = useFilters(NAMES);
  const setQ = useCallback((q: string) => change({ q }), [change]);
  const rows = useMemo(
    () =>
      items.filter(
        (item) =>
          (filters.kind === '' || item.kind === filters.kind) &&
          (filters.state === '' || stateOf(item) === filters.state) &&
          matches(filters.q, [item.name, item.namespace, item.address]),
      ),
    [items, filters],
  );
  const states = [...new Set(items.map(stateOf))].sort();
  return (
    <>
      <header className="page-head">
        <h1>Sources</h1>
        <p className="dim">{count(items.length, 'source')}</p>
      </header>
      {items.length === 0 ? (
        <Empty title="There are no sources yet">
          <p>A GitRepository says which branch of which repository the hub follows.</p>
        </Empty>
      ) : (
        <>
          <div className="filters">
            <Chips
              label="State"
              value={filters.state}
              onChange={(state) => change({ state })}
              chips={states.map((state) => ({
                value: state,
                title: WORDS[state],
                state,
                count: items.filter((item) => stateOf(item) === state).length,
              }))}
            />
            <SearchField label="Filter by name or address" value={filters.q} onChange={setQ} />
            <Choice
              label="Kind"
              value={filters.kind}
              onChange={(kind) => change({ kind })}
              options={[['', 'all'], ...SOURCE_KINDS.map(({ kind }) => [kind, kind] as const)]}
            />
          </div>
          {rows.length === 0 ? (
            <Empty title="No source is like that">
              <button type="button" onClick={() => change({ q: '', kind: '', state: '' })}>
                Show all
              </button>
            </Empty>
          ) : (
            <VirtualTable
              label="Sources"
              columns={COLUMNS}
              rows={rows}
              rowKey={(row) => `${row.kind}/${row.namespace}/${row.name}`}
              rowClass={(row) => `is-${stateOf(row)}`}
            />
          )}
        </>
      )}
    </>
  );
}

const COLUMNS: readonly Column<SourceItem>[] = [
  {
    id: 'name',
    title: 'Source',
    className: 'wide',
    cell: ({ kind, namespace, name }) => (
      <>
        <span className="dim">
          {kind} <Name>{namespace}</Name>/
        </span>
        <Link to={pageOf({ kind, namespace, name }) ?? ''} className="row-link">
          <Name>{name}</Name>
        </Link>
      </>
    ),
  },
  { id: 'state', title: 'State', cell: (row) => <Status state={stateOf(row)} /> },
  {
    id: 'since',
    title: 'For',
    className: 'short',
    cell: (row) => <Age at={row.ready?.since} />,
  },
  {
    id: 'revision',
    title: 'Revision',
    className: 'mid',
    cell: (row) => <Revision>{row.revision}</Revision>,
  },
  {
    id: 'fetched',
    title: 'Fetched',
    className: 'short late',
    cell: (row) => <Age at={row.fetched} />,
  },
  {
    id: 'url',
    title: 'Address',
    className: 'wide late',
    cell: (row) => <ExternalLink address={row.address} />,
  },
];
