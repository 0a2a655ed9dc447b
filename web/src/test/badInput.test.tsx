/** What clusters, repositories and hubs may do wrong. */
import { fireEvent, screen, waitFor } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { afterEach, describe, expect, test } from 'vitest';

import { session } from '../api/session';
import { hubNow, noteHubTime } from '../lib/clock';
import { KUSTOMIZE, hub, recorded, refusal, show } from './hub';

const MARKUP = '<img src=x onerror="document.title=1"><script>1</script>';
const RTL = 'שלום\u202Eevil\u202C';
const LONG = 'x'.repeat(10_000);

type Shop = typeof recorded.shop;

function shop(change: (object: Shop & { metadata: { annotations: Record<string, string> } }) => void): Shop {
  const object = structuredClone(recorded.shop) as Shop & {
    metadata: { annotations: Record<string, string> };
  };
  change(object);
  return object;
}

function withMessage(message: string): Shop {
  return shop((object) => {
    object.status.conditions = [
      {
        type: 'Ready',
        status: 'False',
        reason: 'BuildFailed',
        message,
        lastTransitionTime: '2026-01-02T03:04:05Z',
        observedGeneration: 1,
      },
    ];
  });
}

describe('texts', () => {
  for (const [what, text] of [
    ['markup', MARKUP],
    ['right-to-left text', RTL],
  ] as const) {
    test(`${what} in messages, names and labels is text`, async () => {
      const [cluster] = recorded.clusters.items;
      const items = [{ ...cluster, name: text, labels: { [text]: text } }];
      hub({ '/fleet/v1/clusters': { items }, [`${KUSTOMIZE}/shop`]: withMessage(text) });
      const fleet = show('/');
      const link = await screen.findByRole('link', { name: text });
      // Set apart in its own direction, so that it turns nothing beside it around.
      expect(link.querySelector('bdi')).toHaveTextContent(text, { normalizeWhitespace: false });
      fleet.unmount();
      const { container } = show('/appliers/Kustomization/apps/shop');
      expect((await screen.findAllByText(text)).length).toBeGreaterThan(0);
      expect(container.querySelector('img, script')).toBeNull();
      for (const message of container.querySelectorAll('.message p'))
        expect(message).toHaveAttribute('dir', 'auto');
    });
  }

  test('10,000 characters are cut short, and there when asked for', async () => {
    hub({ [`${KUSTOMIZE}/shop`]: withMessage(LONG) });
    const { container } = show('/appliers/Kustomization/apps/shop');
    const [more] = await screen.findAllByRole('button', { name: 'Show all 10,000 characters' });
    expect(container.textContent.length).toBeLessThan(5_000);
    if (more) await userEvent.click(more);
    expect(screen.getByText(LONG)).toBeVisible();
  });

  test('links lead to the web, and nowhere else', async () => {
    const traps = [
      'javascript:alert(1)',
      ' javascript:alert(1)',
      'JaVaScRiPt:alert(1)',
      'data:text/html,<script>1</script>',
      'https://user:password@example.com/',
      '//example.com/',
      'vbscript:1',
    ];
    const object = shop((held) => {
      const found = Object.fromEntries(traps.map((trap, index) => [`trap-${index}`, trap]));
      held.metadata.annotations = found as typeof held.metadata.annotations;
      held.metadata.annotations.docs = 'https://docs.example/page';
    });
    hub({ [`${KUSTOMIZE}/shop`]: object });
    const { container } = show('/appliers/Kustomization/apps/shop');
    await screen.findByText('trap-0');
    const outward = [...container.querySelectorAll('a[target]')].map((link) => link.getAttribute('href'));
    expect(outward).toEqual(['https://docs.example/page']);
    expect(container.querySelector('a[target]')).toHaveAttribute('rel', 'noopener noreferrer nofollow');
  });
});

test('a Kustomization with 5,000 objects is a tree of few rows, and is filtered', async () => {
  const object = shop((held) => {
    held.status.inventory.entries = Array.from({ length: 5_000 }, (_, index) => ({
      id: `space-${index % 50}_settings-${index}__ConfigMap`,
      v: 'v1',
    }));
  });
  hub({ [`${KUSTOMIZE}/shop`]: object });
  show('/appliers/Kustomization/apps/shop/objects');
  const tree = await screen.findByRole('tree');
  expect(screen.getByText('5,000 objects')).toBeVisible();
  expect(screen.getAllByRole('treeitem').length).toBeLessThan(80);
  fireEvent.keyDown(tree, { key: 'ArrowLeft' });
  expect(screen.getAllByRole('treeitem')[0]).toHaveAttribute('aria-expanded', 'false');
  await userEvent.type(screen.getByLabelText('Filter by kind, namespace or name'), 'settings-4321');
  expect(await screen.findByText('1 of 5,000 objects', {}, { timeout: 10_000 })).toBeVisible();
});

describe('a hub that', () => {
  test('answers 401 ends the session', async () => {
    hub({ '/fleet/v1/clusters': refusal(401, 'Unauthorized') });
    show('/');
    await waitFor(() => expect(session.user()).toBeNull());
    expect(session.ended()).toBe('refused');
  });

  for (const [code, heading, message] of [
    [403, 'You may not see this', 'clusters is forbidden'],
    [409, 'It was changed meanwhile', 'conflict'],
    [410, 'This is no longer kept', 'too old'],
  ] as const) {
    test(`answers ${code}: ${heading}`, async () => {
      hub({ '/fleet/v1/events': refusal(code, message) });
      show('/events');
      expect(await screen.findByRole('heading', { name: heading })).toBeVisible();
      expect(screen.getByText(message)).toBeVisible();
    });
  }

  test('answers 404: says which object there is not', async () => {
    hub();
    show('/appliers/Kustomization/apps/none');
    expect(await screen.findByRole('heading', { name: 'There is no such object' })).toBeVisible();
  });

  test('answers 429 is asked again when it said, and not before', async () => {
    const asked: number[] = [];
    hub({
      '/fleet/v1/clusters': () => {
        asked.push(performance.now());
        return asked.length === 1 ? refusal(429, 'too many', { 'retry-after': '1' }) : recorded.clusters;
      },
    });
    show('/');
    expect(await screen.findByRole('link', { name: 'edge' })).toBeVisible();
    // Timers may fire a little early.
    expect(Number(asked[1]) - Number(asked[0])).toBeGreaterThan(950);
  });

  test('answers 500 is asked again, and then it is said', async () => {
    const { asked } = hub({
      '/fleet/v1/clusters': refusal(500, 'Internal error occurred: see the hub’s log'),
    });
    show('/');
    const again = await screen.findByRole('button', { name: 'Try again' });
    expect(asked.filter((call) => call.path === '/fleet/v1/clusters')).toHaveLength(3);
    hub();
    await userEvent.click(again);
    expect(await screen.findByRole('link', { name: 'edge' })).toBeVisible();
  });

  test('answers something else than JSON, as a proxy may', async () => {
    hub({ '/fleet/v1/clusters': new Response('<html>gateway</html>', { status: 502 }) });
    show('/');
    expect(await screen.findByText('The hub answered 502.', {}, { timeout: 5_000 })).toBeVisible();
  });

  test('cannot be reached', async () => {
    hub({
      '/fleet/v1/clusters': () => {
        throw new TypeError('fetch failed');
      },
    });
    show('/');
    expect((await screen.findAllByText(/cannot be reached/, {}, { timeout: 5_000 })).length).toBeGreaterThan(
      0,
    );
  });

  test('is slow: it is said that it is being waited for, and then that it did not answer', async () => {
    hub({
      '/fleet/v1/clusters': () => {
        throw new DOMException('signal timed out', 'TimeoutError');
      },
    });
    show('/');
    expect(screen.getAllByRole('status')[0]).toHaveTextContent('Loading');
    expect(await screen.findByText('The hub did not answer in time.')).toBeVisible();
  });

  test('fails after it has answered: what is known stays, and it is said that it is old', async () => {
    hub();
    const { client } = show('/');
    await screen.findByRole('link', { name: 'edge' });
    expect(screen.queryByText(/what you see is from before/)).toBeNull();
    hub({ '/fleet/v1/clusters': refusal(500, 'Internal error occurred') });
    void client.invalidateQueries();
    expect(await screen.findByText(/what you see is from before/, {}, { timeout: 5_000 })).toBeVisible();
    expect(screen.getByRole('link', { name: 'edge' })).toBeVisible();
    // What one may no longer see does not stay.
    hub({ '/fleet/v1/clusters': refusal(403, 'forbidden') });
    void client.invalidateQueries();
    await waitFor(() => expect(screen.queryByRole('link', { name: 'edge' })).toBeNull());
    expect(await screen.findByRole('heading', { name: 'Appliers', level: 1 })).toBeVisible();
  });
});

describe('a clock that is off', () => {
  afterEach(() => noteHubTime(new Date().toUTCString()));

  test('does not change ages: they are by the hub’s clock', async () => {
    const away = 5 * 3_600_000;
    const since = new Date(Date.now() + away - 90_000).toISOString();
    const [cluster] = recorded.clusters.items;
    const items = [{ ...cluster, connection: { connected: true, since } }];
    const date = new Date(Date.now() + away).toUTCString();
    hub({ '/fleet/v1/clusters': () => Response.json({ items }, { headers: { date } }) });
    show('/');
    expect(await screen.findByText(/^1m [345]\ds$/)).toBeVisible();
    expect(Math.abs(hubNow() - Date.now() - away)).toBeLessThan(2_000);
  });
});
