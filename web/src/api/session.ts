/**
 * Who the user is to the hub: somebody with a session, of which the browser holds a cookie that no script can read. Only the user's name
 * is kept here, in this tab's session storage, so that a page opens with what it knows before the hub has said who it is.
 */
const KEY = 'roadstead.user';

export type SessionEnd = 'left' | 'refused';

/** `undefined`: it is not known yet. */
type User = string | null | undefined;

let user: User = read();
let ended: SessionEnd | null = null;
const listeners = new Set<() => void>();

function read(): string | undefined {
  try {
    return sessionStorage.getItem(KEY) ?? undefined;
  } catch {
    return undefined;
  }
}

function write(value: string | null): void {
  user = value;
  try {
    if (value === null) sessionStorage.removeItem(KEY);
    else sessionStorage.setItem(KEY, value);
  } catch {
    // Without storage the name lives as long as the page.
  }
  for (const listener of listeners) listener();
}

export const session = {
  user: (): User => user,
  /** Why the last session ended; none where it goes on or there was none. */
  ended: (): SessionEnd | null => ended,
  begin: (value: string): void => {
    ended = null;
    if (value !== user) write(value);
  },
  /** There is none. */
  none: (): void => {
    if (user === undefined) write(null);
    else session.end('refused');
  },
  /** Ends the session, unless another has begun since `of`. */
  end: (why: SessionEnd, of: User = user): void => {
    if (typeof user !== 'string' || of !== user) return;
    ended = why;
    write(null);
  },
  subscribe: (listener: () => void): (() => void) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  },
};
