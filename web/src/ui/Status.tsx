/** States, each by an icon, a colour and a word: never by colour alone. */
import type { ReactNode } from 'react';

import type { IconName } from './icons';
import { Icon } from './icons';

export type State =
  'ok' | 'failing' | 'progressing' | 'waiting' | 'suspended' | 'unknown' | 'away' | 'skipped';

const ICONS: Record<State, IconName> = {
  ok: 'ok',
  failing: 'failing',
  progressing: 'progressing',
  waiting: 'waiting',
  suspended: 'suspended',
  unknown: 'unknown',
  away: 'away',
  skipped: 'skipped',
};

export const WORDS: Record<State, string> = {
  ok: 'Ready',
  failing: 'Not ready',
  progressing: 'Progressing',
  waiting: 'Waiting',
  suspended: 'Suspended',
  unknown: 'Unknown',
  away: 'Away',
  skipped: 'Skipped',
};

export function Status({ state, word }: { state: State; word?: string }): ReactNode {
  return (
    <span className={`status is-${state}`}>
      <Icon name={ICONS[state]} />
      <span>{word ?? WORDS[state]}</span>
    </span>
  );
}

/** The state of something with a Ready condition. */
export function readyState(
  ready: { status: string; reason?: string | undefined } | null | undefined,
  suspended: boolean,
): State {
  if (suspended) return 'suspended';
  if (!ready) return 'unknown';
  if (ready.status === 'True') return 'ok';
  if (ready.status === 'False') return ready.reason === 'DependencyNotReady' ? 'waiting' : 'failing';
  return ready.reason === 'Progressing' ? 'progressing' : 'unknown';
}

const HEALTH: Record<string, [State, string]> = {
  Current: ['ok', 'Healthy'],
  InProgress: ['progressing', 'In progress'],
  Failed: ['failing', 'Failed'],
  Terminating: ['progressing', 'Terminating'],
  NotFound: ['failing', 'Not found'],
  Unknown: ['unknown', 'Unknown'],
};

/** An object's health as the hub gives it: kstatus' word, and behind a colon why. */
export function healthState(text: string): { state: State; word: string; why: string } {
  const [status = '', why = ''] = text.split(/: (.*)/s, 2);
  const [state, word] = HEALTH[status] ?? ['unknown', status];
  return { state, word, why };
}
