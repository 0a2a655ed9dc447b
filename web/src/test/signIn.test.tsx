/** Signing in and out: what is asked of the hub, and that the browser keeps no token. */
import { render, screen, waitFor } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';

import { App } from '../App';
import { session } from '../api/session';
import { learnWhoIsIn, signOut } from '../api/signIn';
import { hub, refusal } from './hub';

const SIGN_IN = '/fleet/v1/sign-in';
const company = {
  name: 'Company',
  issuer: 'https://login.test',
  start: `https://hub.test${SIGN_IN}/start?provider=0`,
};

function storage(): (string | null)[] {
  return [sessionStorage, localStorage].flatMap((kept) =>
    Array.from({ length: kept.length }, (_, index) => kept.getItem(kept.key(index) ?? '')),
  );
}

/** Notes where the page goes instead of going there. */
function departures(): ReturnType<typeof vi.fn> {
  const { origin, pathname, search, hash } = globalThis.location;
  const assign = vi.fn();
  vi.stubGlobal('location', { origin, pathname, search, hash, assign });
  return assign;
}

afterEach(() => {
  vi.unstubAllGlobals();
});

describe('who is not signed in', () => {
  beforeEach(async () => {
    hub({ [SIGN_IN]: { providers: [] } });
    await learnWhoIsIn();
    expect(session.user()).toBeNull();
    globalThis.history.replaceState(null, '', '/ui/clusters/edge-1?tab=x');
  });

  test('goes to a provider and comes back to the page that was open', async () => {
    hub({ [SIGN_IN]: { providers: [company] } });
    render(<App />);
    const button = await screen.findByRole('button', { name: 'Log in with Company' });
    const assign = departures();
    await userEvent.click(button);
    const to = new URL(assign.mock.calls[0]?.[0] as string);
    expect(to.origin + to.pathname).toBe(`https://hub.test${SIGN_IN}/start`);
    expect(to.searchParams.get('provider')).toBe('0');
    expect(to.searchParams.get('to')).toBe('/ui/clusters/edge-1?tab=x');
  });

  test('has a token exchanged, which is kept nowhere', async () => {
    const { asked } = hub({
      [SIGN_IN]: { providers: [] },
      [`${SIGN_IN}/token`]: { user: 'roadstead-admin' },
    });
    render(<App />);
    await userEvent.type(await screen.findByLabelText('Token'), 'rsdt_secret');
    await userEvent.click(screen.getByRole('button', { name: 'Log in' }));
    await waitFor(() => expect(session.user()).toBe('roadstead-admin'));
    const sent = asked.find(({ path }) => path === `${SIGN_IN}/token`);
    expect(sent?.body).toBe('{"token":"rsdt_secret"}');
    expect(sent?.headers.get('x-roadstead-dashboard')).toBe('1');
    for (const { headers } of asked) expect(headers.get('authorization')).toBeNull();
    expect(storage().join()).not.toContain('rsdt_secret');
    expect(document.body.innerHTML).not.toContain('rsdt_secret');
  });

  test('is asked for no token where there are providers, but for emergencies', async () => {
    hub({
      [SIGN_IN]: { providers: [company], tokenIsForEmergencies: true },
      [`${SIGN_IN}/token`]: refusal(403, 'sign in at a provider'),
    });
    render(<App />);
    await screen.findByRole('button', { name: 'Log in with Company' });
    expect(screen.queryByLabelText('Token')).toBeNull();
    await userEvent.click(screen.getByRole('button', { name: /break-glass/ }));
    expect(screen.getByText(/on record as break-glass/)).toBeVisible();
    await userEvent.type(screen.getByLabelText('Token'), 'rsdt_other');
    await userEvent.click(screen.getByRole('button', { name: 'Log in' }));
    expect(await screen.findByText('This token does not log in here.')).toBeVisible();
    expect(session.user()).toBeNull();
  });

  test('is asked for a token beside the providers where each is taken', async () => {
    hub({ [SIGN_IN]: { providers: [company], tokenIsForEmergencies: false } });
    render(<App />);
    await screen.findByRole('button', { name: 'Log in with Company' });
    expect(screen.getByLabelText('Token')).toBeVisible();
    expect(screen.queryByRole('button', { name: /break-glass/ })).toBeNull();
  });

  test('is told when the hub does not know the token', async () => {
    hub({ [SIGN_IN]: { providers: [] }, [`${SIGN_IN}/token`]: refusal(401, 'Unauthorized') });
    render(<App />);
    await userEvent.type(await screen.findByLabelText('Token'), 'no-such-token');
    await userEvent.click(screen.getByRole('button', { name: 'Log in' }));
    expect(await screen.findByText('The hub does not know this token.')).toBeVisible();
    expect(session.user()).toBeNull();
  });
});

describe('who is signed in', () => {
  test('is asked for once the page opens, and may be somebody else', async () => {
    hub({ [SIGN_IN]: { providers: [], user: 'jane' } });
    await learnWhoIsIn();
    expect(session.user()).toBe('jane');
    hub({ [SIGN_IN]: { providers: [] } });
    await learnWhoIsIn();
    expect([session.user(), session.ended()]).toEqual([null, 'refused']);
  });

  test('signs out at the hub, and stays where that is not done', async () => {
    hub({ [`${SIGN_IN}/end`]: refusal(503, 'away') });
    await expect(signOut()).rejects.toThrow();
    expect(session.user()).toBe('admin');
    const { asked } = hub({ [`${SIGN_IN}/end`]: { location: null } });
    await signOut();
    expect([session.user(), session.ended()]).toEqual([null, 'left']);
    expect(asked.map(({ method, path }) => `${method} ${path}`)).toEqual([`POST ${SIGN_IN}/end`]);
    expect(storage()).toEqual([]);
  });

  test('is not led to an address that no browser should open', async () => {
    const assign = departures();
    hub({ [`${SIGN_IN}/end`]: { location: 'javascript:alert(1)' } });
    await signOut();
    session.begin('admin');
    hub({ [`${SIGN_IN}/end`]: { location: 'https://login.test/end' } });
    await signOut();
    expect(assign.mock.calls).toEqual([['https://login.test/end']]);
  });
});
