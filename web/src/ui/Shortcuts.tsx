/** Keys that lead somewhere, and the dialog that lists them. */
import type { ReactNode } from 'react';
import { useEffect, useRef } from 'react';

const PLACES: Record<string, string> = {
  f: '/',
  a: '/appliers',
  s: '/sources',
  e: '/events',
  l: '/alerts',
  u: '/audit',
};

const LIST: readonly [keys: string, what: string][] = [
  ['/', 'To the filter of the page'],
  ['g f', 'Fleet'],
  ['g a', 'Appliers'],
  ['g s', 'Sources'],
  ['g e', 'Events'],
  ['g l', 'Alerts'],
  ['g /', 'Search'],
  ['g u', 'Audit'],
  ['↑ ↓', 'From row to row of a list'],
  ['Enter', 'Open what is focused'],
  ['?', 'This list'],
];

/** So long the second key may take. */
const PATIENCE = 1200;

export function useShortcuts(act: { go: (to: string) => void; help: () => void }): void {
  const latest = useRef(act);
  useEffect(() => {
    latest.current = act;
  });
  useEffect(() => {
    let since = -Infinity;
    const pressed = (event: KeyboardEvent): void => {
      const target = event.target as HTMLElement;
      const typing = target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
      if (typing || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      const second = event.timeStamp - since < PATIENCE;
      since = event.key === 'g' && !second ? event.timeStamp : -Infinity;
      const place = second ? (event.key === '/' ? '/search' : PLACES[event.key]) : undefined;
      if (place !== undefined) {
        event.preventDefault();
        latest.current.go(place);
      } else if (event.key === '/') {
        const filter = document.querySelector<HTMLInputElement>('input[type=search]');
        if (!filter) return;
        event.preventDefault();
        filter.focus();
        filter.select();
      } else if (event.key === '?') {
        latest.current.help();
      }
    };
    document.addEventListener('keydown', pressed);
    return () => document.removeEventListener('keydown', pressed);
  }, []);
}

export function Shortcuts({ open, onClose }: { open: boolean; onClose: () => void }): ReactNode {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (open) dialog.current?.showModal();
    else dialog.current?.close();
  }, [open]);
  return (
    <dialog ref={dialog} className="dialog" aria-labelledby="shortcuts" onClose={onClose}>
      <h2 id="shortcuts">Keys</h2>
      <dl className="keys">
        {LIST.map(([keys, what]) => (
          <div key={keys}>
            <dt>
              {keys.split(' ').map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <form method="dialog">
        <button type="submit">Close</button>
      </form>
    </dialog>
  );
}
