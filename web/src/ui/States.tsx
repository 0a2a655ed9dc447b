/** What stands where there is nothing to show: not yet, not at all, or not for this user. */
import type { ReactNode } from 'react';
import { Link } from 'react-router';

import { HubFailure, adviceOf, headingOf } from '../api/errors';
import { signOut } from '../api/signIn';

/** `page`: it stands for a whole page, and so has its heading. */
export function Loading({ what, page = false }: { what: string; page?: boolean }): ReactNode {
  return (
    <div className="state" role="status">
      {page && <h1 className="unseen">Loading {what}</h1>}
      <span className="spinner" aria-hidden="true" />
      <p>Loading {what}…</p>
    </div>
  );
}

export function Empty({
  title,
  page = false,
  children,
}: {
  title: string;
  page?: boolean;
  children?: ReactNode;
}): ReactNode {
  const Heading = page ? 'h1' : 'h2';
  return (
    <div className="state">
      <Heading>{title}</Heading>
      {children}
    </div>
  );
}

export function Failure({
  error,
  retry,
  page = false,
}: {
  error: unknown;
  retry?: (() => void) | undefined;
  page?: boolean;
}): ReactNode {
  const problem = error instanceof HubFailure ? error.problem : 'broken';
  const Heading = page ? 'h1' : 'h2';
  return (
    <div className={`state failure is-${problem}`} role="alert">
      <Heading>{headingOf(error)}</Heading>
      {error instanceof Error && <p dir="auto">{error.message.slice(0, 1000)}</p>}
      <p className="dim">{adviceOf(error)}</p>
      <p className="actions">
        {retry && (
          <button type="button" onClick={retry}>
            Try again
          </button>
        )}
        {problem === 'forbidden' && (
          <button type="button" onClick={() => void signOut().catch(() => undefined)}>
            Log in as somebody else
          </button>
        )}
        {problem === 'notFound' && <Link to="/">To the fleet</Link>}
      </p>
    </div>
  );
}

/** Says that what is shown is older, where asking again has failed. */
export function Outdated({ error, retry }: { error: unknown; retry: () => void }): ReactNode {
  return (
    <div className="notice is-warning" role="alert">
      <p>
        <strong>{headingOf(error)}:</strong> what you see is from before. {adviceOf(error)}
      </p>
      <button type="button" onClick={retry}>
        Try again
      </button>
    </div>
  );
}

interface Answer<T> {
  data: T | undefined;
  error: unknown;
  refetch: () => unknown;
}

/** An answer in whichever state it is: what is known is shown even where asking again has failed. */
export function Asked<T>({
  answer,
  what,
  page = false,
  children,
}: {
  answer: Answer<T>;
  what: string;
  page?: boolean;
  children: (data: T) => ReactNode;
}): ReactNode {
  const { data, error } = answer;
  const retry = (): void => void answer.refetch();
  // What one may no longer see, or what is gone, is not shown from memory.
  const final = error instanceof HubFailure && ['forbidden', 'notFound'].includes(error.problem);
  if (data === undefined || final) {
    return error ? (
      <Failure error={error} retry={final ? undefined : retry} page={page} />
    ) : (
      <Loading what={what} page={page} />
    );
  }
  return (
    <>
      {Boolean(error) && <Outdated error={error} retry={retry} />}
      {children(data)}
    </>
  );
}
