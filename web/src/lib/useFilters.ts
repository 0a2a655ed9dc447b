/** Filters and choices of a page, kept in its address: so it can be shared, and going back works. */
import { useCallback, useMemo } from 'react';
import { useSearchParams } from 'react-router';

export type Filters<Key extends string> = Record<Key, string>;

/** The values of these parameters, empty where they are not given, and a way to change some of them. */
export function useFilters<Key extends string>(
  names: readonly Key[],
): [Filters<Key>, (changes: Partial<Filters<Key>>) => void] {
  const [params, setParams] = useSearchParams();
  const text = params.toString();
  const filters = useMemo(() => {
    const held = new URLSearchParams(text);
    return Object.fromEntries(names.map((name) => [name, held.get(name) ?? ''])) as Filters<Key>;
    // The names of a page never change.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [text]);
  const change = useCallback(
    (changes: Partial<Filters<Key>>) => {
      setParams(
        (held) => {
          const next = new URLSearchParams(held);
          for (const [name, value] of Object.entries<string | undefined>(changes)) {
            if (value) next.set(name, value);
            else next.delete(name);
          }
          return next;
        },
        // Each letter that is typed would be a step on the way back.
        { replace: true },
      );
    },
    [setParams],
  );
  return [filters, change];
}
