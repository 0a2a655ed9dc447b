import { createContext, use, useSyncExternalStore } from 'react';

import type { Live } from './live';
import type { StreamState } from './stream';

export const LiveContext = createContext<Live | null>(null);

const CONNECTING: StreamState = { phase: 'connecting' };
const never = (): (() => void) => () => undefined;

/** Whether what is shown is live, and how to try again where it is not. */
export function useLive(): { state: StreamState; retryNow: () => void } {
  const live = use(LiveContext);
  const state = useSyncExternalStore(live?.subscribe ?? never, () => live?.current() ?? CONNECTING);
  return { state, retryNow: () => live?.retryNow() };
}
