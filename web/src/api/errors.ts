/** What can go wrong between the page and the hub, in words for people. */

export type Problem =
  | 'unauthenticated'
  | 'forbidden'
  | 'notFound'
  | 'conflict'
  | 'gone'
  | 'tooMany'
  | 'refused'
  | 'broken'
  | 'slow'
  | 'unreachable';

export class HubFailure extends Error {
  override readonly name = 'HubFailure';

  constructor(
    readonly problem: Problem,
    message: string,
    readonly status = 0,
    /** Seconds after which the hub wants to be asked again. */
    readonly retryAfter?: number,
  ) {
    super(message);
  }

  /** Whether asking again may help. */
  get passing(): boolean {
    return ['tooMany', 'broken', 'slow', 'unreachable'].includes(this.problem);
  }
}

function problemOf(status: number): Problem {
  switch (status) {
    case 401:
      return 'unauthenticated';
    case 403:
      return 'forbidden';
    case 404:
      return 'notFound';
    case 409:
      return 'conflict';
    case 410:
      return 'gone';
    case 429:
      return 'tooMany';
    case 408:
    case 504:
      return 'slow';
    default:
      return status >= 500 ? 'broken' : 'refused';
  }
}

const MAX_RETRY_AFTER = 300;

function retryAfter(response: Response): number | undefined {
  const seconds = Number(response.headers.get('retry-after') ?? Number.NaN);
  return Number.isFinite(seconds) && seconds >= 0 ? Math.min(seconds, MAX_RETRY_AFTER) : undefined;
}

/** What an answer that is not a success says. The hub says it as a Kubernetes `Status`; a proxy before it may say anything. */
export async function failureOf(response: Response): Promise<HubFailure> {
  let message = '';
  try {
    const body: unknown = await response.json();
    if (typeof body === 'object' && body !== null && 'message' in body && typeof body.message === 'string') {
      message = body.message;
    }
  } catch {
    // No Status: the number says enough.
  }
  const said = message === '' ? `The hub answered ${response.status}.` : message;
  return new HubFailure(problemOf(response.status), said, response.status, retryAfter(response));
}

/** What ended a request that was not answered. */
export function failureOfRequest(error: unknown): unknown {
  if (error instanceof HubFailure) return error;
  if (error instanceof DOMException && error.name === 'TimeoutError') {
    return new HubFailure('slow', 'The hub did not answer in time.');
  }
  if (error instanceof DOMException && error.name === 'AbortError') return error;
  if (error instanceof TypeError) return new HubFailure('unreachable', 'The hub cannot be reached.');
  return error;
}

/** A heading for a failure. */
export function headingOf(error: unknown): string {
  if (!(error instanceof HubFailure)) return 'Something went wrong';
  switch (error.problem) {
    case 'unauthenticated':
      return 'You are not logged in';
    case 'forbidden':
      return 'You may not see this';
    case 'notFound':
      return 'There is no such object';
    case 'conflict':
      return 'It was changed meanwhile';
    case 'gone':
      return 'This is no longer kept';
    case 'tooMany':
      return 'The hub has too much to do';
    case 'refused':
      return 'The hub refused this';
    case 'broken':
      return 'The hub failed';
    case 'slow':
      return 'The hub is slow';
    case 'unreachable':
      return 'The hub cannot be reached';
  }
}

/** What to do about it. */
export function adviceOf(error: unknown): string {
  if (!(error instanceof HubFailure)) return 'Try again; if it stays so, reload the page.';
  switch (error.problem) {
    case 'unauthenticated':
      return 'Log in with a token that is valid.';
    case 'forbidden':
      return 'Ask for the rights, or log in with another token.';
    case 'notFound':
      return 'It may have been deleted, or the address may hold a slip.';
    case 'conflict':
      return 'Look at it as it is now, and try again.';
    case 'gone':
      return 'Reload the page.';
    case 'tooMany':
      return error.retryAfter === undefined
        ? 'Try again in a moment.'
        : `Try again in ${Math.max(1, Math.ceil(error.retryAfter))} s.`;
    case 'refused':
      return 'What it says above names the cause.';
    case 'broken':
      return "Try again; the cause is in the hub's log.";
    case 'slow':
      return 'Try again in a moment.';
    case 'unreachable':
      return 'Check the network and whether the hub runs.';
  }
}
