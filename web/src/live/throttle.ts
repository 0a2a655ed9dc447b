/**
 * Does a thing at once, and then at most once in a while however often it is asked for: the first change of a quiet fleet is
 * seen at once, and a storm of changes costs the hub no more than a few questions.
 */
export class Throttle {
  private last = new Map<string, number>();
  private waiting = new Map<string, ReturnType<typeof setTimeout>>();

  run(key: string, period: number, act: () => void): void {
    if (this.waiting.has(key)) return;
    const now = performance.now();
    const due = (this.last.get(key) ?? -Infinity) + period;
    const go = (): void => {
      this.waiting.delete(key);
      this.last.set(key, performance.now());
      act();
    };
    // Never in the same turn, so that what comes in one piece of the stream is one.
    this.waiting.set(key, setTimeout(go, Math.max(0, due - now)));
    if (this.last.size > 1000) this.forget(now);
  }

  stop(): void {
    for (const timer of this.waiting.values()) clearTimeout(timer);
    this.waiting.clear();
  }

  private forget(now: number): void {
    for (const [key, at] of this.last) if (now - at > 60_000) this.last.delete(key);
  }
}
