/**
 * The stream of changes: opened, watched over, and taken up again where it was cut. It says at any time whether what is shown
 * is live, and since when it is not.
 */
import { hubFetch } from '../api/client';
import { HubFailure } from '../api/errors';
import type { components } from '../api/fleet';
import { hubNow } from '../lib/clock';
import { serverEvents } from './sse';

export type Change = components['schemas']['FleetChange'];

export type StreamState =
  | { phase: 'connecting' }
  | { phase: 'live'; since: number }
  /** `since` and `retryAt` by the hub's clock. */
  | { phase: 'cut'; since: number; retryAt: number; why: string; forbidden: boolean };

export interface StreamOptions {
  /** A change. */
  onChange: (change: Change) => void;
  /** The stream is open. What was known before may be outdated, unless it goes on from where it was cut. */
  onOpen: (resumed: boolean) => void;
  onState: (state: StreamState) => void;
  open?: (request: Request) => Promise<Response>;
}

function whyCut(failure: unknown): string {
  // What a browser says of a connection that broke differs, and helps nobody.
  if (failure instanceof TypeError) return 'The connection to the hub broke.';
  return failure instanceof Error ? failure.message : 'The hub ended the stream.';
}

/** The hub shows every 15 s that it lives. */
const SILENCE = 40_000;
const FIRST_PAUSE = 1_000;
const LONGEST_PAUSE = 30_000;

export class ChangeStream {
  private lastId: string | null = null;
  private failures = 0;
  private cutSince: number | null = null;
  private attempt: AbortController | null = null;
  private wake: (() => void) | null = null;
  /** Counts the starts: what an earlier one began goes on no longer. Zero where it is stopped. */
  private running = 0;
  private starts = 0;

  constructor(private readonly options: StreamOptions) {}

  start(): void {
    this.starts += 1;
    this.running = this.starts;
    void this.run(this.starts);
  }

  stop(): void {
    this.running = 0;
    this.attempt?.abort();
    this.wake?.();
  }

  /** Tries at once, where a pause is under way. */
  retryNow(): void {
    this.wake?.();
  }

  private async run(start: number): Promise<void> {
    this.options.onState({ phase: 'connecting' });
    while (this.running === start) {
      const failure = await this.follow();
      if (this.hasEnded(start)) return;
      const pause = this.pauseAfter(failure);
      this.cutSince ??= hubNow();
      this.failures += 1;
      const why = whyCut(failure);
      const forbidden = failure instanceof HubFailure && failure.problem === 'forbidden';
      this.options.onState({ phase: 'cut', since: this.cutSince, retryAt: hubNow() + pause, why, forbidden });
      await this.pause(pause);
    }
  }

  // A field that another task sets: the compiler must not reason it away.
  private hasEnded(start: number): boolean {
    return this.running !== start;
  }

  private pauseAfter(failure: unknown): number {
    if (failure instanceof HubFailure && failure.retryAfter !== undefined) return failure.retryAfter * 1000;
    const longest = Math.min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** this.failures);
    // Spread, so that all pages of a fleet do not come back at one moment.
    return longest / 2 + Math.random() * (longest / 2);
  }

  private pause(milliseconds: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(done, milliseconds);
      function done(): void {
        clearTimeout(timer);
        resolve();
      }
      this.wake = done;
    });
  }

  /** Follows the stream until it ends, and gives what ended it. */
  private async follow(): Promise<unknown> {
    const attempt = new AbortController();
    this.attempt = attempt;
    let watchdog: ReturnType<typeof setTimeout> | undefined;
    const heard = (): void => {
      clearTimeout(watchdog);
      watchdog = setTimeout(
        () => attempt.abort(new Error('Nothing was heard of the hub for 40 s.')),
        SILENCE,
      );
    };
    try {
      heard();
      const headers: Record<string, string> = { accept: 'text/event-stream' };
      if (this.lastId !== null) headers['last-event-id'] = this.lastId;
      const address = new URL('/fleet/v1/changes', globalThis.location.origin);
      const open = this.options.open ?? ((request: Request) => hubFetch(request, Infinity));
      const response = await open(new Request(address, { headers, signal: attempt.signal }));
      if (!response.body) throw new Error('The hub’s answer has no body.');
      this.opened();
      for await (const event of serverEvents(response.body)) {
        heard();
        if (event.type === 'gone') {
          this.lastId = null;
          return new Error('The hub no longer keeps the changes since then.');
        }
        if (event.type === 'change') this.take(event.id, event.data);
      }
      return undefined;
    } catch (error) {
      // From before what the hub keeps: everything is asked for again.
      if (error instanceof HubFailure && error.problem === 'gone') this.lastId = null;
      return attempt.signal.aborted && attempt.signal.reason instanceof Error ? attempt.signal.reason : error;
    } finally {
      clearTimeout(watchdog);
      attempt.abort();
    }
  }

  private opened(): void {
    this.failures = 0;
    this.cutSince = null;
    this.options.onState({ phase: 'live', since: hubNow() });
    this.options.onOpen(this.lastId !== null);
  }

  private take(id: string | null, data: string): void {
    const change = JSON.parse(data) as Change;
    if (id !== null && id !== '') this.lastId = id;
    this.options.onChange(change);
  }
}
