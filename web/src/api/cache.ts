/**
 * What the hub said last, kept in this tab's session storage: a page opens with what it knows before it asks. Only answers
 * that say so (`meta.keep`) are kept; they end with the session.
 */
import type { Query, QueryClient } from '@tanstack/react-query';

const ALL = 'roadstead.known.';
/** With the version of what answers look like: what a dashboard of before kept is not shown by one that reads it differently. */
const PREFIX = `${ALL}2.`;
/** Of one answer, and of all, in characters. */
const MAX_ONE = 1_500_000;
const MAX_ALL = 4_000_000;
const PAUSE = 2_000;

interface Known {
  key: readonly unknown[];
  data: unknown;
  at: number;
}

/** What is kept: how large it is, and of when. */
const kept = new Map<string, { size: number; at: number }>();

function names(): string[] {
  const all = Array.from({ length: sessionStorage.length }, (_, index) => sessionStorage.key(index));
  return all.filter((name) => name?.startsWith(ALL) === true) as string[];
}

/** Gives the client what is known. */
export function recall(client: QueryClient): void {
  try {
    for (const name of names()) {
      if (!name.startsWith(PREFIX)) {
        sessionStorage.removeItem(name);
        continue;
      }
      const text = sessionStorage.getItem(name) ?? '';
      const { key, data, at } = JSON.parse(text) as Known;
      client.setQueryData(key, data, { updatedAt: at });
      kept.set(name, { size: text.length, at });
    }
  } catch {
    forget();
  }
}

export function forget(): void {
  kept.clear();
  try {
    for (const name of names()) sessionStorage.removeItem(name);
  } catch {
    // No storage: nothing is known.
  }
}

function drop(name: string): void {
  kept.delete(name);
  sessionStorage.removeItem(name);
}

function store(query: Query): void {
  const { data, dataUpdatedAt: at } = query.state;
  const text = JSON.stringify({ key: query.queryKey, data, at } satisfies Known);
  const name = PREFIX + query.queryHash;
  drop(name);
  if (text.length > MAX_ONE) return;
  let all = text.length;
  for (const entry of kept.values()) all += entry.size;
  const oldest = [...kept].sort(([, a], [, b]) => a.at - b.at);
  for (const [other, { size }] of oldest) {
    if (all <= MAX_ALL) break;
    drop(other);
    all -= size;
  }
  sessionStorage.setItem(name, text);
  kept.set(name, { size: text.length, at });
}

/** Keeps what comes from now on; what it gives ends that. */
export function keep(client: QueryClient): () => void {
  const changed = new Map<string, Query>();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const write = (): void => {
    timer = undefined;
    for (const query of changed.values()) {
      try {
        store(query);
      } catch {
        // Full or not there: the next page asks.
      }
    }
    changed.clear();
  };
  const unsubscribe = client.getQueryCache().subscribe((event) => {
    if (event.type !== 'updated' || event.action.type !== 'success') return;
    if (event.query.meta?.keep !== true) return;
    changed.set(event.query.queryHash, event.query as Query);
    timer ??= setTimeout(write, PAUSE);
  });
  globalThis.addEventListener('pagehide', write);
  return () => {
    unsubscribe();
    clearTimeout(timer);
    globalThis.removeEventListener('pagehide', write);
  };
}
