import type { ReactNode } from 'react';

import type { Condition, KubeObject } from '../api/kinds';
import { Message } from './Text';
import type { State } from './Status';
import { Status } from './Status';
import { Age } from './Time';

/** Conditions that are bad when they are True. */
const BAD = new Set([
  'Stalled',
  'Suspended',
  'FetchFailed',
  'BuildFailed',
  'IncludeUnavailable',
  'StorageOperationFailed',
  'ArtifactOutdated',
  'Contended',
  'Deleting',
]);

function stateOf({ type, status, reason }: Condition): State {
  if (status === 'Unknown') return reason === 'Progressing' ? 'progressing' : 'unknown';
  if (type === 'Suspended') return status === 'True' ? 'suspended' : 'ok';
  if (type === 'Reconciling') return status === 'True' ? 'progressing' : 'ok';
  return (status === 'True') === BAD.has(type) ? 'failing' : 'ok';
}

export function Conditions({ object }: { object: KubeObject }): ReactNode {
  const { status, metadata } = object;
  const conditions = status?.conditions ?? [];
  if (conditions.length === 0) return <p className="dim">The hub has not said anything of it yet.</p>;
  return (
    <ul className="conditions">
      {conditions.map((condition) => (
        <li key={condition.type}>
          <div className="condition-head">
            <Status state={stateOf(condition)} word={`${condition.type}: ${condition.status}`} />
            <span>{condition.reason}</span>
            <span className="dim">
              for <Age at={condition.lastTransitionTime} />
            </span>
          </div>
          {condition.message !== undefined && condition.message !== '' && (
            <Message text={condition.message} />
          )}
          {(condition.observedGeneration ?? 0) < (metadata.generation ?? 0) &&
            condition.observedGeneration !== undefined && (
              <p className="dim">
                Of generation {condition.observedGeneration}; the object is at {metadata.generation}.
              </p>
            )}
        </li>
      ))}
    </ul>
  );
}
