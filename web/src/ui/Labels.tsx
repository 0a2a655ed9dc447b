import type { ReactNode } from 'react';

/** Labels of an object, at most so many. */
export function Labels({ labels, most = 100 }: { labels: Record<string, string>; most?: number }): ReactNode {
  const all = Object.entries(labels);
  if (all.length === 0) return null;
  return (
    <span className="labels">
      {all.slice(0, most).map(([key, value]) => (
        <span className="label" key={key} title={`${key}=${value}`.slice(0, 500)}>
          <bdi>{key.replace(/^.*\//, '').slice(0, 63)}</bdi>=<bdi>{value.slice(0, 63)}</bdi>
        </span>
      ))}
      {all.length > most && <span className="dim">+{all.length - most}</span>}
    </span>
  );
}
