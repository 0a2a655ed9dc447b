/** What happened in the fleet, the newest first. */
import type { ReactNode } from 'react';
import { useCallback } from 'react';

import { KINDS } from '../api/kinds';
import { useFilters } from '../lib/useFilters';
import { EventList } from '../ui/EventList';
import { Chips, Choice, SearchField } from '../ui/Fields';
import { Empty } from '../ui/States';
import { usePageTitle } from '../ui/usePageTitle';

const NAMES = ['name', 'kind', 'type'] as const;

export default function EventsPage(): ReactNode {
  usePageTitle('Events');
  const [filter, change] = useFilters(NAMES);
  const setName = useCallback((name: string) => change({ name }), [change]);
  const narrowed = Object.values(filter).some(Boolean);
  return (
    <div className="page fills">
      <header className="page-head">
        <h1>Events</h1>
      </header>
      <div className="filters">
        <Chips
          label="Type"
          value={filter.type}
          onChange={(type) => change({ type })}
          chips={[
            { value: 'Warning', title: 'Warnings', state: 'failing' },
            { value: 'Normal', title: 'Normal', state: 'ok' },
          ]}
        />
        <SearchField label="Filter by the object's name" value={filter.name} onChange={setName} />
        <Choice
          label="Kind"
          value={filter.kind}
          onChange={(kind) => change({ kind })}
          options={[['', 'all'], ...KINDS.map(({ kind }) => [kind, kind] as const)]}
        />
      </div>
      <EventList
        filter={filter}
        empty={
          narrowed ? (
            <Empty title="No event is like that">
              <button type="button" onClick={() => change({ name: '', kind: '', type: '' })}>
                Show all
              </button>
            </Empty>
          ) : (
            <Empty title="Nothing happened lately" />
          )
        }
      />
    </div>
  );
}
