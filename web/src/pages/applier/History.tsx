/** The last reconciliations, each with what it changed. */
import type { ReactNode } from 'react';

import type { ObjectId } from '../../api/kinds';
import type { Attempt, Reconciliations } from '../../api/queries';
import { Empty } from '../../ui/States';
import type { State } from '../../ui/Status';
import { Status } from '../../ui/Status';
import { Message, Name, Revision } from '../../ui/Text';
import { Age } from '../../ui/Time';
import { Diff } from './Diff';
import { timingsOf, tookOf } from './stages';

/** So many changes are listed of one attempt. */
const LISTED = 200;
const ACTIONS = [
  'created',
  'configured',
  'recreated',
  'adopted',
  'deleted',
  'drifted',
  'skipped',
  'unchanged',
];

export function HistoryTab({ id, history }: { id: ObjectId; history: Reconciliations }): ReactNode {
  if (history.items.length === 0) return <Empty title="It was not reconciled yet" />;
  return (
    <ol className="history">
      {history.items.map((attempt, index) => (
        <li key={attempt.attempt}>
          <details open={index === 0}>
            <summary>
              <span className="attempt-number">#{attempt.attempt}</span>
              <Status state={stateOf(attempt)} word={attempt.reason ?? 'Under way'} />
              <span className="grow">
                <Revision>{attempt.revision ?? ''}</Revision>
              </span>
              <Counts attempt={attempt} />
              <span className="dim">{tookOf(attempt)}</span>
              <span className="dim">
                <Age at={attempt.started} suffix=" ago" />
              </span>
            </summary>
            <Attempted attempt={attempt} />
            {hasBuildBefore(history.items, index) && (
              <div className="attempt">
                <Diff id={id} attempt={attempt.attempt} />
              </div>
            )}
          </details>
        </li>
      ))}
    </ol>
  );
}

/** Whether an attempt has a build, and one before it had another. */
function hasBuildBefore(items: readonly Attempt[], index: number): boolean {
  const build = items[index]?.build;
  return (
    build != null && items.slice(index + 1).some((older) => older.build != null && older.build !== build)
  );
}

function stateOf({ reason }: Attempt): State {
  if (reason == null) return 'progressing';
  return reason === 'ReconciliationSucceeded' ? 'ok' : 'failing';
}

function Counts({ attempt: { counts } }: { attempt: Attempt }): ReactNode {
  const shown = ACTIONS.filter((action) => (counts[action] ?? 0) > 0);
  return (
    <span className="counts">
      {shown.map((action) => (
        <span key={action} className={`action is-${action}`}>
          {counts[action]} {action}
        </span>
      ))}
    </span>
  );
}

function Attempted({ attempt }: { attempt: Attempt }): ReactNode {
  const listed = attempt.changeSet.slice(0, LISTED);
  const more = attempt.changeSet.length - listed.length;
  return (
    <div className="attempt">
      {attempt.message && <Message text={attempt.message} />}
      {attempt.timings.length > 0 && <p className="dim">{timingsOf(attempt.timings)}</p>}
      {listed.length > 0 ? (
        <ul className="changes">
          {listed.map(({ object, action }) => (
            <li key={`${object.group}/${object.kind}/${object.namespace ?? ''}/${object.name}`}>
              <span className={`action is-${action}`}>{action}</span>
              <Name>{[object.kind, object.namespace, object.name].filter(Boolean).join(' / ')}</Name>
            </li>
          ))}
          {more > 0 && <li className="dim">and {more.toLocaleString('en')} more</li>}
        </ul>
      ) : (
        <p className="dim">It changed nothing.</p>
      )}
    </div>
  );
}
