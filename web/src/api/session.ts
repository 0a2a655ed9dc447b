/**
 * Who the user is to the hub: a bearer token, kept in this tab's session storage. There it outlives a reload, and ends with
 * the tab; another origin cannot read it, and it is never part of an address, which servers and browsers write down.
 */
const KEY = 'roadstead.token';

export type SessionEnd = 'left' | 'refused';

let token: string | null = read();
let ended: SessionEnd | null = null;
const listeners = new Set<() => void>();

function read(): string | null {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}

function write(value: string | null): void {
  token = value;
  try {
    if (value === null) sessionStorage.removeItem(KEY);
    else sessionStorage.setItem(KEY, value);
  } catch {
    // Without storage the token lives as long as the page.
  }
  for (const listener of listeners) listener();
}

export const session = {
  token: (): string | null => token,
  /** Why the last session ended; none where it goes on or there was none. */
  ended: (): SessionEnd | null => ended,
  begin: (value: string): void => {
    ended = null;
    write(value);
  },
  /** Ends the session, unless another has begun since `of`. */
  end: (why: SessionEnd, of: string | null = token): void => {
    if (token === null || of !== token) return;
    ended = why;
    write(null);
  },
  subscribe: (listener: () => void): (() => void) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  },
};
