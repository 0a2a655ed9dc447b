/** What can be done with an applier or a source: have it reconciled now, suspend it, resume it. */
import { useMutation, useQueryClient } from '@tanstack/react-query';
import type { ReactNode } from 'react';

import { HubFailure, adviceOf, headingOf } from '../api/errors';
import type { KubeObject, ObjectId } from '../api/kinds';
import { conditionOf } from '../api/kinds';
import { useMayChange, useMayDelegate } from '../api/may';
import { keys, reconcile, suspend } from '../api/queries';
import { useToast } from './Toasts';

type Act = 'reconcile' | 'reconcile with source' | 'suspend' | 'resume';

const NONE: readonly ObjectId[] = [];

const DONE: Record<Act, string> = {
  reconcile: 'The hub was asked to reconcile it now.',
  'reconcile with source': 'The hub was asked to fetch the source now; what is new is applied then.',
  suspend: 'Suspended: nothing is reconciled until it is resumed.',
  resume: 'Resumed.',
};

export function Actions({
  id,
  object,
  sources = NONE,
}: {
  id: ObjectId;
  object: KubeObject;
  /** What can be fetched before it is reconciled. */
  sources?: readonly ObjectId[];
}): ReactNode {
  const { spec, status, metadata } = object as KubeObject<{ suspend?: boolean; delegation?: unknown }>;
  const client = useQueryClient();
  const say = useToast();
  const suspended = spec?.suspend === true;
  const may = useMayChange([id]);
  const mayFetch = useMayChange(sources);
  const mayDelegate = useMayDelegate(spec?.delegation ? [id] : NONE);
  const mutation = useMutation({
    mutationFn: async (act: Act) => {
      if (act === 'suspend' || act === 'resume') return suspend(id, act === 'suspend');
      if (act === 'reconcile with source') await Promise.all(sources.map(reconcile));
      return reconcile(id);
    },
    onSuccess: (fresh, act) => {
      client.setQueryData(keys.object(id), fresh);
      say(`${id.kind} ${id.name}: ${DONE[act]}`);
    },
    onError: (error, act) => {
      // It may have been changed, or be gone, meanwhile.
      void client.invalidateQueries({ queryKey: keys.object(id) });
      say(`Could not ${act} ${id.name}. ${explained(error)}`, false);
    },
  });
  const { pending, act } = { pending: mutation.isPending, act: mutation.variables };
  const held = (what: Act): string | undefined => {
    if (!may.allowed) return `You may not change it: ${may.why}`;
    if (what === 'reconcile with source' && !mayFetch.allowed)
      return `You may not ask for its source: ${mayFetch.why}`;
    if ((what === 'suspend' || what === 'resume') && !mayDelegate.allowed)
      return `It has spec.delegation, which you may not give: ${mayDelegate.why}`;
    return suspended && what !== 'resume' ? 'It is suspended: resume it first' : undefined;
  };
  const button = (what: Act, title: string, primary = false): ReactNode => (
    <button
      type="button"
      className={primary ? 'primary' : ''}
      disabled={pending || held(what) !== undefined}
      title={held(what)}
      onClick={() => mutation.mutate(what)}
    >
      {pending && act === what ? `${title}…` : title}
    </button>
  );
  const asked = metadata.annotations?.['reconcile.fluxcd.io/requestedAt'];
  const handled = (status as { lastHandledReconcileAt?: string } | undefined)?.lastHandledReconcileAt;
  const waits = asked !== undefined && asked !== handled && conditionOf(object, 'Ready') !== undefined;
  return (
    <div className="actions" role="group" aria-label="Actions">
      {!may.allowed && (
        <span className="dim" dir="auto">
          You may not change it{may.why && `: ${may.why.slice(0, 300)}`}
        </span>
      )}
      {waits && !suspended && <span className="dim">A reconciliation was asked for</span>}
      {button('reconcile', 'Reconcile', true)}
      {sources.length > 0 &&
        button('reconcile with source', sources.length > 1 ? 'With sources' : 'With source')}
      {suspended ? button('resume', 'Resume') : button('suspend', 'Suspend')}
    </div>
  );
}

function explained(error: unknown): string {
  const said = error instanceof HubFailure && error.problem !== 'tooMany' ? `${error.message} ` : '';
  return `${headingOf(error)}. ${said}${adviceOf(error)}`;
}
