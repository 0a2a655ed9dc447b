/** Times and durations in words. */

const UNITS: [string, number][] = [
  ['y', 365 * 86_400],
  ['d', 86_400],
  ['h', 3_600],
  ['m', 60],
  ['s', 1],
];

/** A span as `3d 4h`: its two largest units; one from ten of the larger on. */
export function span(milliseconds: number): string {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  for (const [index, [unit, size]] of UNITS.entries()) {
    const count = Math.floor(seconds / size);
    if (count === 0) continue;
    const next = UNITS[index + 1];
    const rest = next && count < 10 ? Math.floor((seconds % size) / next[1]) : 0;
    return next && rest > 0 ? `${count}${unit} ${rest}${next[0]}` : `${count}${unit}`;
  }
  return '0s';
}

/** How long ago something was, for `now` of the hub. What lies ahead by more than a clock's slack says so. */
export function age(at: number, now: number): string {
  const past = now - at;
  if (past < -5_000) return `in ${span(-past)}`;
  return past < 1_000 ? 'now' : span(past);
}

/** A time as the user's locale writes it, with the zone. */
export function absolute(at: number): string {
  return new Date(at).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'long' });
}

/** A duration as the hub writes it (`1m0.5s`), as milliseconds; none where it is not readable. */
export function parseDuration(text: string): number | null {
  const sizes: Record<string, number> = { h: 3_600_000, m: 60_000, s: 1000, ms: 1, µs: 0.001, ns: 0.000001 };
  let rest = text;
  let sum = 0;
  while (rest !== '') {
    const part = /^(\d+(?:\.\d+)?)(h|ms|m|s|µs|ns)/.exec(rest);
    const size = sizes[part?.[2] ?? ''];
    if (!part || size === undefined) return null;
    sum += Number(part[1]) * size;
    rest = rest.slice(part[0].length);
  }
  return text === '' ? null : sum;
}

/** A duration for people: `85 ms`, `1.4 s`, `3m 20s`. */
export function duration(milliseconds: number): string {
  if (milliseconds < 1) return `${milliseconds.toFixed(1)} ms`;
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  if (milliseconds < 60_000) return `${(milliseconds / 1000).toFixed(1)} s`;
  return span(milliseconds);
}
