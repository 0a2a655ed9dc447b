/** Signing in and out: at a provider, where the browser goes itself, or with a token, which the hub exchanges for a session. */
import { forget } from './cache';
import { getApart, postApart } from './client';
import { session } from './session';

const SIGN_IN = '/fleet/v1/sign-in';

export interface Provider {
  name: string;
  issuer: string;
  /** Where the browser begins. */
  start: string;
}

interface Offered {
  providers?: Provider[];
  /** People sign in at a provider: only an administrator's token is accepted. */
  tokenIsForEmergencies?: boolean;
  user?: string;
}

/** Where people sign in, and who has. */
export async function offered(): Promise<{
  providers: Provider[];
  tokenIsForEmergencies: boolean;
  user: string | null;
}> {
  const { providers = [], tokenIsForEmergencies = false, user } = await getApart<Offered>(SIGN_IN);
  return { providers, tokenIsForEmergencies, user: user ?? null };
}

/** Asks the hub who it is, and has the session begin or end by that. */
export async function learnWhoIsIn(): Promise<void> {
  const { user } = await offered();
  if (user === null) {
    session.none();
    return;
  }
  // Nobody is shown what somebody else was.
  if (typeof session.user() === 'string' && session.user() !== user) forget();
  session.begin(user);
}

/** Where a sign-in at a provider begins that ends at the page which is open. */
export function startAt(provider: Provider): string {
  const { pathname, search, hash } = globalThis.location;
  const start = new URL(provider.start, globalThis.location.origin);
  start.searchParams.set('to', `${pathname}${search}${hash}`);
  return start.href;
}

/** Leaves the dashboard for an address that the hub named. */
export function goTo(address: string): void {
  if (address.startsWith('https://')) globalThis.location.assign(address);
}

/** Exchanges a token for a session. The token is kept nowhere. */
export async function signInWith(token: string): Promise<void> {
  const { user } = await postApart<{ user: string }>(`${SIGN_IN}/token`, { token });
  session.begin(user);
}

/** Ends the session, at the provider, too, where it has a page for that. */
export async function signOut(): Promise<void> {
  const { location } = await postApart<{ location: string | null }>(`${SIGN_IN}/end`, {});
  session.end('left');
  if (location !== null) goTo(location);
}
