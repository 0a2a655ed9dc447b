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
  'takenOver',
  'handedOver',
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

const TRIGGERS: Readonly<Record<string, string>> = {
  Deletion: 'Deleted',
  Spec: 'Changed',
  Request: 'Asked for',
  Cluster: 'The cluster is another one',
  Revision: 'The source has another revision',
  Inputs: 'A ConfigMap or Secret has changed',
  Handover: 'Objects were handed over',
  Confirmation: 'Deletions were confirmed',
  Retry: 'Tried again',
  Release: 'Nothing holds it back any more',
  Interval: 'The interval was over',
  Drift: 'Others had changed objects',
};

/** What led to an attempt, in words. */
function triggerOf(trigger: string): string {
  return TRIGGERS[trigger] ?? trigger;
}

/** The word for an action: the hub's, but for those that are two words. */
function wordOf(action: string): string {
  if (action === 'takenOver') return 'taken over';
  return action === 'handedOver' ? 'handed over' : action;
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
          {counts[action]} {wordOf(action)}
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
      {attempt.trigger != null && (
        <p className="dim">
          {triggerOf(attempt.trigger)}
          {attempt.actor != null && ` by ${attempt.actor}`}
        </p>
      )}
      {attempt.message && <Message text={attempt.message} />}
      {attempt.timings.length > 0 && <p className="dim">{timingsOf(attempt.timings)}</p>}
      {listed.length > 0 ? (
        <ul className="changes">
          {listed.map(({ object, action, other }) => (
            <li key={`${action}/${object.group}/${object.kind}/${object.namespace ?? ''}/${object.name}`}>
              <span className={`action is-${action}`}>{wordOf(action)}</span>
              <Name>{[object.kind, object.namespace, object.name].filter(Boolean).join(' / ')}</Name>
              {other != null && (
                <span className="dim">
                  {action === 'takenOver' ? 'from' : 'to'} {other}
                </span>
              )}
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
