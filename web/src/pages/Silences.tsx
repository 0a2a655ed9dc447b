/** Silences: what is not sent, who said so and why; and, for those who may, making one and ending it. */
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import type { ReactNode, SubmitEvent } from 'react';
import { useState } from 'react';

import { HubFailure, adviceOf, headingOf } from '../api/errors';
import type { ObjectId } from '../api/kinds';
import { useMayCreate, useMayDelete } from '../api/may';
import type { SilenceItem, SilenceOrder } from '../api/queries';
import { endSilence, keys, makeSilence, silences } from '../api/queries';
import { count } from '../lib/words';
import { Asked, Empty } from '../ui/States';
import type { State } from '../ui/Status';
import { Status } from '../ui/Status';
import { Message, Name } from '../ui/Text';
import { Age } from '../ui/Time';
import { useToast } from '../ui/Toasts';

export function Silences({ namespace }: { namespace: string }): ReactNode {
  const answer = useQuery(silences(namespace));
  return (
    <>
      <Asked answer={answer} what="the Silences">
        {(rows) =>
          rows.length === 0 ? (
            <Empty title={namespace === '' ? 'There are no Silences' : 'No Silence is there'} />
          ) : (
            <ul className="event-list" aria-label="Silences">
              {rows.map((silence) => (
                <Silence key={`${silence.namespace}/${silence.name}`} silence={silence} />
              ))}
            </ul>
          )
        }
      </Asked>
      <Make namespace={namespace} />
    </>
  );
}

function idOf({ namespace, name }: { namespace: string; name: string }): ObjectId {
  return { kind: 'Silence', namespace, name };
}

/** What a Silence does now, by a state and in a word. */
function stateOf({ isOver, inForceUntil }: SilenceItem): [State, string] {
  if (isOver) return ['skipped', 'Over'];
  return inForceUntil == null ? ['waiting', 'Not in force'] : ['suspended', 'In force'];
}

function Silence({ silence }: { silence: SilenceItem }): ReactNode {
  const { namespace, name, reason, author, from, until, schedule, inForceUntil, alerts, objects, keptBack } =
    silence;
  const [state, word] = stateOf(silence);
  return (
    <li>
      <div className="condition-head">
        <span>
          <Status state={state} word={word} /> <Name>{`${namespace}/${name}`}</Name>
          {inForceUntil != null && (
            <>
              {' '}
              · ends <Age at={inForceUntil} />
            </>
          )}
        </span>
        <End silence={silence} />
      </div>
      <Message text={reason} />
      <p className="dim">
        {author === '' ? 'by somebody' : `by ${author}`} · from <Age at={from} suffix=" ago" />
        {until != null && (
          <>
            {' '}
            · until <Age at={until} suffix=" ago" />
          </>
        )}
        {schedule !== '' && ` · ${schedule}`}
      </p>
      <p className="dim">
        {alerts.length === 0 ? 'All Alerts' : `Alerts ${alerts.join(', ')}`} ·{' '}
        {objects.length === 0 ? 'all objects' : objects.join('; ')}
        {keptBack > 0 && ` · keeps back news of ${count(keptBack, 'object')} now`}
      </p>
    </li>
  );
}

function End({ silence }: { silence: SilenceItem }): ReactNode {
  const id = idOf(silence);
  const client = useQueryClient();
  const say = useToast();
  const may = useMayDelete(id);
  const mutation = useMutation({
    mutationFn: () => endSilence(id),
    onSuccess: () => say(`Silence ${id.name}: It is ended; what happened meanwhile is summed up.`),
    onError: (error) => say(`Could not end ${id.name}. ${explained(error)}`, false),
    // It may be gone already.
    onSettled: () => client.invalidateQueries({ queryKey: keys.silences() }),
  });
  const why = may.allowed ? undefined : `You may not end it: ${may.why}`;
  return (
    <button
      type="button"
      disabled={mutation.isPending || why !== undefined}
      title={why}
      aria-label={`End Silence ${id.namespace}/${id.name}`}
      onClick={() => mutation.mutate()}
    >
      {mutation.isPending ? 'Ending…' : 'End'}
    </button>
  );
}

const LASTS: readonly (readonly [hours: string, title: string])[] = [
  ['1', '1 hour'],
  ['4', '4 hours'],
  ['24', '1 day'],
  ['168', '1 week'],
];

/** A field of a form, without blanks around it. */
function text(form: FormData, name: string): string {
  const value = form.get(name);
  return typeof value === 'string' ? value.trim() : '';
}

function Make({ namespace }: { namespace: string }): ReactNode {
  const [wanted, setWanted] = useState<string | null>(null);
  const where = wanted ?? namespace;
  const client = useQueryClient();
  const say = useToast();
  const may = useMayCreate('Silence', where);
  const mutation = useMutation({
    mutationFn: (order: SilenceOrder) => makeSilence(order),
    onSuccess: (made) => say(`Silence ${made.metadata.name}: It is in force.`),
    onError: (error) => say(`Could not make a Silence. ${explained(error)}`, false),
    onSettled: () => client.invalidateQueries({ queryKey: keys.silences() }),
  });
  const submit = (event: SubmitEvent<HTMLFormElement>): void => {
    event.preventDefault();
    const element = event.currentTarget;
    const form = new FormData(element);
    const order: SilenceOrder = {
      namespace: where.trim(),
      reason: text(form, 'reason'),
      hours: Number(text(form, 'hours')),
      cluster: text(form, 'cluster'),
      kind: text(form, 'kind'),
      name: text(form, 'name'),
      alert: text(form, 'alert'),
    };
    mutation.mutate(order, { onSuccess: () => element.reset() });
  };
  const why = where === '' || may.allowed ? undefined : `You may not make one there: ${may.why}`;
  return (
    <details className="fold-section">
      <summary>Make a Silence</summary>
      <form className="filters" aria-label="Make a Silence" onSubmit={submit}>
        <Field label="Namespace">
          <input
            name="namespace"
            value={where}
            onChange={(event) => setWanted(event.target.value)}
            required
            maxLength={63}
            spellCheck={false}
          />
        </Field>
        <Field label="Why">
          <input name="reason" required maxLength={1024} />
        </Field>
        <Field label="For">
          <select name="hours" defaultValue="1">
            {LASTS.map(([hours, title]) => (
              <option key={hours} value={hours}>
                {title}
              </option>
            ))}
          </select>
        </Field>
        <Field label="Only on cluster">
          <input name="cluster" maxLength={253} spellCheck={false} />
        </Field>
        <Field label="Only of kind">
          <input name="kind" maxLength={63} spellCheck={false} />
        </Field>
        <Field label="Only of name">
          <input name="name" maxLength={253} spellCheck={false} />
        </Field>
        <Field label="Only Alert">
          <input name="alert" maxLength={253} spellCheck={false} />
        </Field>
        <button
          type="submit"
          className="primary"
          disabled={mutation.isPending || why !== undefined}
          title={why}
        >
          {mutation.isPending ? 'Making…' : 'Make it'}
        </button>
        {why !== undefined && (
          <span className="dim" dir="auto">
            {why.slice(0, 300)}
          </span>
        )}
      </form>
    </details>
  );
}

function Field({ label, children }: { label: string; children: ReactNode }): ReactNode {
  return (
    <label className="field">
      <span>{label}</span>
      {children}
    </label>
  );
}

function explained(error: unknown): string {
  const said = error instanceof HubFailure && error.problem !== 'tooMany' ? `${error.message} ` : '';
  return `${headingOf(error)}. ${said}${adviceOf(error)}`;
}
