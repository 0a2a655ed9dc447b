/**
 * The hub's clock. All times come from the hub and agents; the browser's own clock may be off by hours, so ages are reckoned
 * by what the hub's answers say in `Date`.
 */
const TOLERANCE = 2_000;

let offset = 0;

/** Notes when the hub has answered. `Date` has whole seconds, so a small difference is none. */
export function noteHubTime(date: string | null, now = Date.now()): void {
  if (date === null) return;
  const at = Date.parse(date);
  if (Number.isNaN(at)) return;
  const seen = at + 500 - now;
  offset = Math.abs(seen) <= TOLERANCE ? 0 : seen;
}

/** Milliseconds of the hub's clock. */
export function hubNow(): number {
  return Date.now() + offset;
}

/** By how much the browser's clock is off, in milliseconds; positive where it is behind. */
export function clockOffset(): number {
  return offset;
}
