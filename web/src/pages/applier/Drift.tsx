/** Objects that differ from what was applied, and those that did and were corrected, with fields and values. */
import { useQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';

import type { ObjectId } from '../../api/kinds';
import type { DriftItem } from '../../api/queries';
import * as queries from '../../api/queries';
import { Asked, Empty } from '../../ui/States';
import type { State } from '../../ui/Status';
import { Status } from '../../ui/Status';
import { Message, Name } from '../../ui/Text';
import { Age } from '../../ui/Time';

const STATES: Record<string, [State, string]> = {
  reported: ['waiting', 'Reported, not corrected'],
  contended: ['failing', 'Changed again each time'],
  failed: ['failing', 'Cannot be corrected'],
  corrected: ['ok', 'Corrected'],
};

export function DriftTab({ id }: { id: ObjectId }): ReactNode {
  const answer = useQuery(queries.drift(id));
  return (
    <Asked answer={answer} what="the drift">
      {({ items }) =>
        items.length === 0 ? (
          <Empty title="Nothing has drifted">
            <p className="dim">No object was changed by anybody else lately, as far as the agent has seen.</p>
          </Empty>
        ) : (
          <ul className="event-list" aria-label="Drift">
            {items.map((item) => (
              <li key={keyOf(item)}>
                <Drifted item={item} />
              </li>
            ))}
          </ul>
        )
      }
    </Asked>
  );
}

function keyOf({ group, kind, namespace, name, firstSeen }: DriftItem): string {
  return [group, kind, namespace, name, firstSeen].join('\n');
}

/** How it stands: what is over was either corrected, or is as it was applied again. */
function stateOf({ state, ended, corrections }: DriftItem): [State, string] {
  if (ended != null && corrections === 0) return ['ok', 'As applied again'];
  if (ended != null) return ['ok', 'Corrected'];
  return STATES[state] ?? ['unknown', state];
}

function Drifted({ item }: { item: DriftItem }): ReactNode {
  const { kind, namespace, name, managers, missing, fields, message, corrections, firstSeen, lastSeen } =
    item;
  const [state, word] = stateOf(item);
  return (
    <>
      <div className="condition-head">
        <Status state={state} word={word} />
        <Name>{[kind, namespace, name].filter(Boolean).join(' / ')}</Name>
        <span className="dim">
          <Age at={lastSeen} suffix=" ago" />
          {firstSeen !== lastSeen && (
            <>
              , first <Age at={firstSeen} suffix=" ago" />
            </>
          )}
          {corrections > 1 && ` · corrected ${corrections.toLocaleString('en')} times`}
        </span>
      </div>
      <p>
        {missing ? 'It was deleted' : 'It was changed'}
        {managers.length > 0 && <> by {managers.join(', ')}</>}
      </p>
      {message !== '' && <Message text={message} />}
      <dl className="diff-fields">
        {fields.map(({ path, told, live, desired }) => (
          <div key={path}>
            <dt>{path}</dt>
            {told && desired != null && <dd className="is-from">{desired}</dd>}
            {told && live != null && <dd className="is-to">{live}</dd>}
          </div>
        ))}
      </dl>
    </>
  );
}
