/** All appliers, of whichever kind, namespace and cluster. */
import type { ReactNode } from 'react';
import { useCallback } from 'react';

import { useFilters } from '../lib/useFilters';
import { ApplierTable } from '../ui/ApplierTable';
import { Chips, Choice, SearchField } from '../ui/Fields';
import { Empty } from '../ui/States';
import { usePageTitle } from '../ui/usePageTitle';
import { APPLIER_KINDS } from './applier/kinds';

const NAMES = ['name', 'kind', 'namespace', 'cluster', 'state'] as const;

export default function AppliersPage(): ReactNode {
  usePageTitle('Appliers');
  const [filter, change] = useFilters(NAMES);
  const set = (key: (typeof NAMES)[number]) => (value: string) => change({ [key]: value });
  const setName = useCallback((name: string) => change({ name }), [change]);
  const narrowed = Object.values(filter).some(Boolean);
  return (
    <div className="page fills">
      <header className="page-head">
        <h1>Appliers</h1>
        <p className="dim">Objects of the hub that deploy to clusters</p>
      </header>
      <div className="filters">
        <Chips
          label="State"
          value={filter.state}
          onChange={set('state')}
          chips={[
            { value: 'False', title: 'Not ready', state: 'failing' },
            { value: 'Unknown', title: 'Progressing', state: 'progressing' },
            { value: 'Suspended', title: 'Suspended', state: 'suspended' },
            { value: 'True', title: 'Ready', state: 'ok' },
          ]}
        />
        <SearchField label="Filter by name" value={filter.name} onChange={setName} />
        <Choice
          label="Kind"
          value={filter.kind}
          onChange={set('kind')}
          options={[['', 'all'], ...APPLIER_KINDS.map(({ kind }) => [kind, kind] as const)]}
        />
        <ExactField label="Namespace" value={filter.namespace} onChange={set('namespace')} />
        <ExactField label="Cluster" value={filter.cluster} onChange={set('cluster')} />
      </div>
      <ApplierTable
        filter={filter}
        empty={
          narrowed ? (
            <Empty title="No applier is like that">
              <button
                type="button"
                onClick={() => change({ name: '', kind: '', namespace: '', cluster: '', state: '' })}
              >
                Show all
              </button>
            </Empty>
          ) : (
            <Empty title="There are no appliers yet">
              <p>A Kustomization, for example, says which path of which source goes to which cluster.</p>
            </Empty>
          )
        }
      />
    </div>
  );
}

/** A filter that takes a whole name: it counts once it is written to its end. */
function ExactField({
  label,
  value,
  onChange,
}: {
  label: string;
  value: string;
  onChange: (value: string) => void;
}): ReactNode {
  return (
    <form
      className="field"
      onSubmit={(event) => {
        event.preventDefault();
        const text = new FormData(event.currentTarget).get('value');
        onChange(typeof text === 'string' ? text.trim() : '');
      }}
    >
      <label>
        <span>{label}</span>
        <input
          key={value}
          name="value"
          defaultValue={value}
          maxLength={253}
          size={12}
          placeholder="all"
          spellCheck={false}
          autoComplete="off"
          onBlur={(event) => event.target.value.trim() !== value && onChange(event.target.value.trim())}
        />
      </label>
    </form>
  );
}
