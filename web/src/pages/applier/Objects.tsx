/** The objects that an applier owns: a table or a tree, with health and why. */
import type { ReactNode } from 'react';
import { useCallback, useMemo } from 'react';

import { useFilters } from '../../lib/useFilters';
import { count } from '../../lib/words';
import { Chips, Choice, SearchField } from '../../ui/Fields';
import { Empty } from '../../ui/States';
import { Status, WORDS } from '../../ui/Status';
import { Name } from '../../ui/Text';
import type { Column } from '../../ui/VirtualTable';
import { VirtualTable } from '../../ui/VirtualTable';
import { ObjectTree } from './ObjectTree';
import type { OwnedObject } from './objects';
import { filterObjects } from './objects';

const NAMES = ['q', 'health', 'view'] as const;

export function ObjectsTab({ objects }: { objects: readonly OwnedObject[] }): ReactNode {
  const [filters, change] = useFilters(NAMES);
  const setQ = useCallback((q: string) => change({ q }), [change]);
  const shown = useMemo(
    () => filterObjects(objects, filters.q, filters.health),
    [objects, filters.q, filters.health],
  );
  const states = [...new Set(objects.map((object) => object.state))].sort();
  if (objects.length === 0) return <Empty title="It owns no objects" />;
  return (
    <>
      <div className="filters">
        <Chips
          label="Health"
          value={filters.health}
          onChange={(health) => change({ health })}
          chips={states.map((state) => ({
            value: state,
            title: state === 'ok' ? 'Healthy or applied' : WORDS[state],
            state,
            count: objects.filter((object) => object.state === state).length,
          }))}
        />
        <SearchField label="Filter by kind, namespace or name" value={filters.q} onChange={setQ} />
        <Choice
          label="Show as"
          value={filters.view}
          onChange={(view) => change({ view })}
          options={[
            ['', 'tree'],
            ['table', 'table'],
          ]}
        />
      </div>
      <p className="dim" role="status">
        {shown.length === objects.length
          ? count(objects.length, 'object')
          : `${shown.length.toLocaleString('en')} of ${count(objects.length, 'object')}`}
      </p>
      {shown.length === 0 ? (
        <Empty title="No object is like that">
          <button type="button" onClick={() => change({ q: '', health: '' })}>
            Show all
          </button>
        </Empty>
      ) : filters.view === 'table' ? (
        <VirtualTable label="Objects" bounded columns={COLUMNS} rows={shown} rowKey={(row) => row.id} />
      ) : (
        <ObjectTree objects={shown} />
      )}
    </>
  );
}

const COLUMNS: readonly Column<OwnedObject>[] = [
  { id: 'kind', title: 'Kind', className: 'mid', cell: (row) => <Name>{row.kind}</Name> },
  {
    id: 'namespace',
    title: 'Namespace',
    className: 'mid',
    cell: (row) => <Name>{row.namespace || '–'}</Name>,
  },
  { id: 'name', title: 'Name', className: 'wide', cell: (row) => <Name>{row.name}</Name> },
  { id: 'health', title: 'Health', cell: (row) => <Status state={row.state} word={row.word} /> },
  {
    id: 'why',
    title: 'Why',
    className: 'wide late',
    cell: (row) => (
      <span className="dim clip" title={row.why.slice(0, 1000)}>
        <bdi>{row.why.slice(0, 300)}</bdi>
      </span>
    ),
  },
  {
    id: 'action',
    title: 'Last change',
    className: 'late',
    cell: (row) =>
      row.action ? (
        <span className={`action is-${row.action}`}>{row.action}</span>
      ) : (
        <span className="dim">–</span>
      ),
  },
];
