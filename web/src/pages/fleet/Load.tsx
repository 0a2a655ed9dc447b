/** How many appliers are in which state, as a bar and in figures. */
import type { ReactNode } from 'react';

import type { State } from '../../ui/Status';

const PARTS: readonly [key: string, state: State, word: string][] = [
  ['False', 'failing', 'not ready'],
  ['Unknown', 'progressing', 'progressing'],
  ['Suspended', 'suspended', 'suspended'],
  ['True', 'ok', 'ready'],
];

export function Load({ counts }: { counts: Record<string, number> }): ReactNode {
  const parts = PARTS.map(([key, state, word]) => ({ state, word, count: counts[key] ?? 0 })).filter(
    (part) => part.count > 0,
  );
  const all = parts.reduce((sum, part) => sum + part.count, 0);
  if (all === 0) return <span className="dim">none</span>;
  const words = parts.map((part) => `${part.count} ${part.word}`).join(', ');
  return (
    <span className="load-bar" title={words}>
      <svg viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
        {parts.map((part, index) => {
          const before = parts.slice(0, index).reduce((sum, each) => sum + each.count, 0);
          const [x, width] = [(before / all) * 100, (part.count / all) * 100];
          return <rect key={part.state} className={`bar is-${part.state}`} x={x} width={width} height={6} />;
        })}
      </svg>
      <span aria-hidden="true">
        {counts.True ?? 0}/{all}
      </span>
      <span className="unseen">{words}</span>
    </span>
  );
}
