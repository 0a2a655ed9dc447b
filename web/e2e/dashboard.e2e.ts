/** The dashboard in Chromium, before the real hub with real clusters behind it. */
import type { Browser } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';

import type { Visit } from './support';
import {
  Way,
  ask,
  expectAccessible,
  expectNothingWrong,
  guestToken,
  hub,
  launch,
  login,
  open,
  picture,
  secret,
  token,
  visit,
} from './support';

let browser: Browser;
let way: Way;
let at: Visit;

beforeAll(async () => {
  browser = await launch();
  way = await Way.open();
});
afterAll(async () => {
  await browser.close();
  way.close();
});
afterEach(async () => {
  way.restore();
  await at.context.close();
});

const KS = '/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/apps/kustomizations';

/** Every page, and what shows that it is there. */
const PAGES: [name: string, path: string, shows: string][] = [
  ['fleet', '/', 'edge-3'],
  ['fleet-grouped', '/?group=label:region', 'region=south'],
  ['cluster', '/clusters/edge', 'shop'],
  ['appliers', '/appliers', 'payments'],
  ['applier', '/appliers/Kustomization/apps/shop', 'Applied revision'],
  ['applier-failing', '/appliers/Kustomization/apps/payments', 'HealthCheckFailed'],
  ['applier-objects', '/appliers/Kustomization/apps/shop/objects', 'checkout-settings'],
  ['applier-objects-table', '/appliers/Kustomization/apps/payments/objects?view=table', 'payments-settings'],
  ['applier-history', '/appliers/Kustomization/apps/shop/history', 'created'],
  ['applier-drift', '/appliers/Kustomization/apps/shop/drift', 'Nothing has drifted'],
  ['applier-events', '/appliers/Kustomization/apps/shop/events', 'ReconciliationSucceeded'],
  ['applier-yaml', '/appliers/Kustomization/apps/shop/yaml', 'kind: Kustomization'],
  ['applier-of-unknown-kind', '/appliers/Rehearsal/apps/rehearsed', 'Applied revision'],
  ['applier-of-unknown-kind-objects', '/appliers/Rehearsal/apps/rehearsed/objects', 'rehearsed-first'],
  ['applier-of-unknown-kind-history', '/appliers/Rehearsal/apps/rehearsed/history', 'created'],
  ['sources', '/sources', 'missing'],
  ['source', '/sources/GitRepository/apps/webapp', 'shop-staging'],
  ['events', '/events', 'ReconciliationSucceeded'],
  ['events-of-clusters', '/events?kind=Cluster', 'AgentConnected'],
  ['search', '/search?kind=Deployment', 'payments'],
  ['search-labels', '/search?labels=app%3Dcatalog', 'catalog'],
  ['no-page', '/nowhere', 'There is no such page'],
];

describe('every page', () => {
  for (const [form, options] of [
    ['light', {}],
    ['dark', { dark: true }],
    ['phone', { width: 390, height: 844 }],
    ['wide', { width: 2200, height: 1200 }],
  ] as const) {
    test(`is whole, accessible and keeps the policy: ${form}`, async () => {
      at = await visit(browser, way.origin, options);
      for (const [name, path, shows] of PAGES) {
        await open(at, path);
        await at.page.getByText(shows).first().waitFor();
        await at.page.getByText('Live', { exact: true }).waitFor();
        const wide = await at.page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        expect(wide, `${name} is no wider than the ${form} screen`).toBeLessThanOrEqual(0);
        expect(await at.page.content(), name).not.toContain(secret);
        await picture(at.page, `${name}-${form}`);
        await expectAccessible(at.page, `${name}, ${form}`);
      }
      expectNothingWrong(at);
    });
  }
});

describe('logging in', () => {
  test('takes a token that the hub knows, and keeps it out of addresses', async () => {
    at = await visit(browser, way.origin);
    const { page } = at;
    const answer = await page.goto('/ui/appliers/Kustomization/apps/shop?x=1');
    const policy = answer?.headers()['content-security-policy'] ?? '';
    expect(policy).toContain("script-src 'self'");
    expect(policy).not.toContain('unsafe');
    await picture(page, 'login-light');
    await expectAccessible(page, 'login');
    await login(page, 'no-such-token');
    await page.getByText('The hub does not know this token.').waitFor();
    await login(page);
    // The address was kept.
    await page.getByRole('heading', { name: /shop/ }).waitFor();
    expect(page.url()).toContain('/ui/appliers/Kustomization/apps/shop?x=1');
    await page.reload();
    await page.getByRole('heading', { name: /shop/ }).waitFor();
    await page.getByRole('button', { name: 'Log out' }).click();
    await page.getByLabel('Token').waitFor();
    expect(await page.evaluate(() => JSON.stringify(sessionStorage))).toBe('{}');
    expectNothingWrong(at);
  });

  test('says so to whom the hub shows nothing', async () => {
    at = await visit(browser, way.origin);
    await at.page.goto('/ui/');
    await login(at.page, guestToken);
    await at.page.getByRole('heading', { name: 'You may not see this' }).waitFor();
    await picture(at.page, 'no-permission-light');
    await expectAccessible(at.page, 'no permission');
  });
});

describe('live', () => {
  test('what changes on the hub is seen without asking', async () => {
    at = await visit(browser, way.origin);
    await open(at, '/appliers');
    const row = at.page.getByRole('row').filter({ hasText: 'shop-staging' });
    await row.getByText('Ready', { exact: true }).waitFor();
    await ask(at.context, 'PATCH', `${KS}/shop-staging`, { spec: { suspend: true } });
    await row.getByText('Suspended', { exact: true }).waitFor({ timeout: 10_000 });
    await ask(at.context, 'PATCH', `${KS}/shop-staging`, { spec: { suspend: null } });
    await row.getByText('Ready', { exact: true }).waitFor({ timeout: 10_000 });
    expectNothingWrong(at);
  });

  test('is honest when the stream is cut, and shows what was missed when it is back', async () => {
    at = await visit(browser, way.origin);
    await open(at, '/');
    const row = at.page
      .getByRole('row')
      .filter({ has: at.page.getByRole('link', { name: 'edge-2', exact: true }) });
    await row.getByText('Healthy').waitFor();
    way.cut();
    await at.page.getByText(/Not live since/).waitFor({ timeout: 20_000 });
    await picture(at.page, 'cut-light');
    await expectAccessible(at.page, 'the cut stream');
    await ask(at.context, 'PATCH', `${KS}/shop-staging`, { spec: { suspend: true } });
    // What was known is still there.
    await row.getByText('Healthy').waitFor();
    way.restore();
    // It may be back by itself just before: then there is no such button any more.
    const live = at.page.getByText('Live', { exact: true });
    await Promise.any([at.page.getByRole('button', { name: 'Try now' }).click(), live.waitFor()]);
    await live.waitFor({ timeout: 20_000 });
    await row.getByText('Suspended', { exact: true }).waitFor({ timeout: 20_000 });
    await ask(at.context, 'PATCH', `${KS}/shop-staging`, { spec: { suspend: null } });
    await row.getByText('Healthy').waitFor({ timeout: 20_000 });
  });

  test('opens with what it knows before it asks', async () => {
    at = await visit(browser, way.origin);
    await open(at, '/');
    await at.page.getByText('edge-3').waitFor();
    // What is known is written down a moment later.
    await expect
      .poll(() => at.page.evaluate(() => JSON.stringify(sessionStorage).includes('edge-3')))
      .toBe(true);
    let release: () => void = () => undefined;
    const held = new Promise<void>((resolve) => (release = resolve));
    await at.page.route('**/fleet/v1/**', async (route) => {
      await held;
      await route.continue();
    });
    await at.page.reload();
    await at.page.getByText('edge-3').waitFor({ timeout: 5_000 });
    release();
    await at.page.unrouteAll({ behavior: 'ignoreErrors' });
  });
});

describe('a Kustomization', () => {
  test('is reconciled, suspended and resumed by its page', async () => {
    at = await visit(browser, way.origin);
    const { page } = at;
    await open(at, '/appliers/Kustomization/apps/shop/history');
    const first = await page.locator('.attempt-number').first().textContent();
    const next = `#${Number(first?.slice(1)) + 1}`;
    await page.getByRole('button', { name: 'Reconcile', exact: true }).click();
    await page.getByText(next, { exact: true }).waitFor({ timeout: 30_000 });
    await page.getByText('It changed nothing.').first().waitFor({ timeout: 30_000 });
    await page.getByRole('button', { name: 'Suspend' }).click();
    await page.getByRole('heading', { name: /Suspended/ }).waitFor();
    await page.getByRole('button', { name: 'Resume' }).click();
    await page.getByRole('heading', { name: /Ready/ }).waitFor({ timeout: 20_000 });
    expectNothingWrong(at);
  });

  test('shows which object is not healthy, and why', async () => {
    at = await visit(browser, way.origin);
    const { page } = at;
    await open(at, '/appliers/Kustomization/apps/payments/objects');
    const item = page.getByRole('treeitem').filter({ hasText: 'Deployment' }).first();
    await item.waitFor();
    const object = page
      .getByRole('treeitem', { level: 3 })
      .filter({ hasText: /^payments(?!-)/ })
      .first();
    await expect.poll(() => object.textContent()).toMatch(/In progress|Failed/);
    await page.goto('/ui/appliers/Kustomization/apps/payments');
    await page.locator('.stage.is-failing').filter({ hasText: 'Health' }).waitFor();
    await page.goto('/ui/appliers/Kustomization/apps/broken');
    await page.locator('.stage.is-failing').filter({ hasText: 'Build' }).waitFor();
    await page.goto('/ui/appliers/Kustomization/apps/lonely');
    await page.locator('.stage.is-waiting').filter({ hasText: 'edge-3' }).waitFor();
  });

  test('makes links of addresses of the web, and of nothing else', async () => {
    at = await visit(browser, way.origin);
    await open(at, '/appliers/Kustomization/apps/shop');
    await at.page.getByText('javascript:document.title=1').waitFor();
    const addresses = await at.page
      .locator('a')
      .evaluateAll((links) => links.map((link) => (link as HTMLAnchorElement).href));
    expect(addresses.some((address) => address === 'https://docs.example/shop')).toBe(true);
    expect(addresses.every((address) => address.startsWith('https://'))).toBe(true);
  });
});

describe('an applier of a kind that the dashboard does not know', () => {
  test('is found by the list, and suspended and resumed by its page', async () => {
    at = await visit(browser, way.origin);
    const { page } = at;
    await open(at, '/appliers?name=rehearsed');
    await page
      .getByRole('row')
      .filter({ hasText: 'Rehearsal' })
      .getByRole('link', { name: 'rehearsed' })
      .click();
    await page.getByRole('link', { name: 'GitRepository apps/first' }).waitFor();
    await page.getByRole('link', { name: 'GitRepository apps/second' }).waitFor();
    await expect.poll(() => page.locator('.stage').filter({ hasText: 'Source' }).count()).toBe(2);
    await page.locator('.stage.is-ok').filter({ hasText: 'Apply' }).waitFor();
    await page.getByRole('button', { name: 'Suspend' }).click();
    await page.getByRole('heading', { name: /Suspended/ }).waitFor();
    await page.getByRole('button', { name: 'Resume' }).click();
    await page.getByRole('heading', { name: /Ready/ }).waitFor({ timeout: 20_000 });
    expectNothingWrong(at);
  });
});

describe('addresses and keys', () => {
  test('a filter is part of the address, and going back works', async () => {
    at = await visit(browser, way.origin);
    const { page } = at;
    await open(at, '/');
    await page.getByLabel(/^Filter by/).fill('region=south');
    await expect.poll(() => page.url()).toContain('q=region%3Dsouth');
    await expect.poll(() => page.getByRole('link', { name: 'edge', exact: true }).count()).toBe(0);
    await page.getByRole('link', { name: 'edge-2', exact: true }).click();
    await page.getByRole('heading', { name: /edge-2/ }).waitFor();
    await page.goBack();
    await page.getByRole('link', { name: 'edge-3', exact: true }).waitFor();
    expect(page.url()).toContain('q=region%3Dsouth');
    expect(await page.getByLabel(/^Filter by/).inputValue()).toBe('region=south');
  });

  test('of the pages from before there were other appliers than Kustomizations lead on', async () => {
    at = await visit(browser, way.origin);
    const { page } = at;
    await open(at, '/kustomizations/apps/shop/history');
    await page.getByRole('heading', { name: /shop/ }).waitFor();
    expect(new URL(page.url()).pathname).toBe('/ui/appliers/Kustomization/apps/shop/history');
    await open(at, '/kustomizations?state=Suspended');
    await page.getByRole('link', { name: 'paused' }).waitFor();
    expect(new URL(page.url()).search).toBe('?state=Suspended&kind=Kustomization');
  });

  test('all of it can be reached by keys', async () => {
    at = await visit(browser, way.origin);
    const { page } = at;
    await open(at, '/');
    await page.getByRole('link', { name: 'edge-2', exact: true }).waitFor();
    await page.keyboard.press('Tab');
    expect(await page.evaluate(() => document.activeElement?.textContent)).toBe('To the content');
    await page.keyboard.type('ga');
    await page.getByRole('heading', { name: 'Appliers' }).waitFor();
    await page.getByRole('link', { name: 'broken' }).focus();
    await page.keyboard.press('ArrowDown');
    await expect.poll(() => page.evaluate(() => document.activeElement?.textContent)).toBe('lonely');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: /lonely/ }).waitFor();
    await page.keyboard.press('?');
    await page.getByRole('dialog', { name: 'Keys' }).waitFor();
    await expectAccessible(page, 'the dialog');
    await page.keyboard.press('Escape');
    await page.goto('/ui/appliers/Kustomization/apps/shop/objects');
    await page.getByRole('tree').focus();
    const count = await page.getByRole('treeitem').count();
    await page.keyboard.press('ArrowLeft');
    await expect.poll(() => page.getByRole('treeitem').count()).toBeLessThan(count);
    await page.keyboard.press('ArrowRight');
    await expect.poll(() => page.getByRole('treeitem').count()).toBe(count);
  });
});

test('the hub gives the dashboard no more than its files', async () => {
  at = await visit(browser, way.origin);
  const get = (path: string) => at.context.request.get(new URL(path, hub).href, { maxRedirects: 0 });
  expect((await get('/')).headers().location).toBe('/ui/');
  expect((await get('/ui/assets/none.js')).status()).toBe(404);
  expect((await get('/fleet/v1/clusters')).status()).toBe(401);
  const page = await get('/ui/appliers/Kustomization/a/b');
  expect(await page.text()).not.toContain(token);
  expect(page.headers()['x-content-type-options']).toBe('nosniff');
});
