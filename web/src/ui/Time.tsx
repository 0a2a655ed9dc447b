/** Times that stay right while they are looked at. */
import type { ReactNode } from 'react';
import { useSyncExternalStore } from 'react';

import { hubNow } from '../lib/clock';
import { absolute, age } from '../lib/time';

const listeners = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;

/** One tick for all times of the page; a time is drawn again only when its words change. */
function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  timer ??= setInterval(() => {
    if (!document.hidden) for (const each of listeners) each();
  }, 1000);
  return () => {
    listeners.delete(listener);
    if (listeners.size === 0) {
      clearInterval(timer);
      timer = undefined;
    }
  };
}

/** What `words` gives, as time goes on. */
export function useTicking(words: (now: number) => string): string {
  return useSyncExternalStore(subscribe, () => words(hubNow()));
}

/** How long ago something was. */
export function Age({ at, suffix = '' }: { at: string | null | undefined; suffix?: string }): ReactNode {
  const time = Date.parse(at ?? '');
  const words = useTicking((now) => (Number.isNaN(time) ? '' : age(time, now)));
  if (words === '') return <span className="dim">–</span>;
  const past = words !== 'now' && !words.startsWith('in ');
  return (
    <time dateTime={at ?? ''} title={absolute(time)}>
      {past ? words + suffix : words}
    </time>
  );
}
