/** The pages over what a real hub has answered. */
import { screen, waitFor, within } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import type { ReactNode } from 'react';
import { describe, expect, test } from 'vitest';

import { PageLinks } from '../ui/Shell';
import { KUSTOMIZE, hub, recorded, refusal, show } from './hub';

const REVIEWS = '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews';

/** Refuses the questions that have this word. */
function refuses(word: string, reason: string): (call: { body: string }) => unknown {
  return ({ body }) => ({
    status: body.includes(`"${word}"`) ? { allowed: false, reason } : { allowed: true },
  });
}

const withLinks = (pages: ReactNode): ReactNode => (
  <>
    <PageLinks />
    {pages}
  </>
);

describe('what one may see', () => {
  test('is what there is: no clusters, no audit log', async () => {
    hub({
      [REVIEWS]: ({ body }: { body: string }) => ({
        status: { allowed: !body.includes('"clusters"') && !body.includes('/fleet/v1/audit') },
      }),
      '/fleet/v1/clusters': refusal(403, 'User "eve" cannot list clusters'),
    });
    show('/', withLinks);
    expect(await screen.findByRole('heading', { name: 'Appliers', level: 1 })).toBeVisible();
    const pages = within(screen.getByRole('navigation', { name: 'Pages' }));
    await waitFor(() => expect(pages.queryByText('Audit')).toBeNull());
    expect(pages.queryByText('Fleet')).toBeNull();
    expect(pages.getByText('Appliers')).toBeVisible();
  });

  test('is all of it for whoever may see all', async () => {
    const { asked } = hub();
    show('/appliers', withLinks);
    await screen.findByRole('heading', { name: 'Appliers', level: 1 });
    await waitFor(() => expect(asked.filter((call) => call.path === REVIEWS)).toHaveLength(2));
    const pages = within(screen.getByRole('navigation', { name: 'Pages' }));
    for (const title of ['Fleet', 'Audit']) expect(pages.getByText(title)).toBeVisible();
    // Where the right to all of them is known, they are not asked for only to know.
    expect(asked.some((call) => call.path === '/fleet/v1/clusters')).toBe(false);
  });
});

describe('fleet', () => {
  test('shows clusters with health, versions, connections and what fails', async () => {
    const { asked } = hub();
    show('/');
    const row = (await screen.findByRole('link', { name: 'edge' })).closest<HTMLElement>('[role=row]');
    expect(row).not.toBeNull();
    if (!row) return;
    expect(within(row).getByText('Failing')).toBeVisible();
    expect(within(row).getByText('Connected')).toBeVisible();
    expect(within(row).getByText(recorded.clusters.items[0]?.kubernetesVersion ?? '-')).toBeVisible();
    expect(row.textContent).toContain('region=north');
    // Who asks is told by a cookie, which no script sees.
    expect(asked.every(({ headers }) => headers.get('authorization') === null)).toBe(true);
    expect(asked.every(({ headers }) => headers.get('x-roadstead-dashboard') === '1')).toBe(true);
  });

  test('is filtered by label and grouped', async () => {
    hub();
    show('/?q=region%3Dsouth&group=state');
    await screen.findByRole('link', { name: 'edge-2' });
    expect(screen.queryByRole('link', { name: 'edge' })).toBeNull();
    const heading = screen.getByRole('button', { name: /Healthy.*1 cluster/ });
    await userEvent.click(heading);
    expect(heading).toHaveAttribute('aria-expanded', 'false');
    expect(screen.queryByRole('link', { name: 'edge-2' })).toBeNull();
  });

  test('says what to do where there are no clusters', async () => {
    hub({ '/fleet/v1/clusters': { items: [] } });
    show('/');
    expect(await screen.findByText('There are no clusters yet')).toBeVisible();
  });

  test('draws few rows of a thousand clusters', async () => {
    const [first] = recorded.clusters.items;
    const items = Array.from({ length: 1000 }, (_, index) => ({ ...first, name: `edge-${index}` }));
    hub({ '/fleet/v1/clusters': { items } });
    show('/');
    const table = await screen.findByRole('table', { name: 'Clusters' });
    expect(table).toHaveAttribute('aria-rowcount', '1001');
    const drawn = within(table).getAllByRole('row').length;
    expect(drawn).toBeGreaterThan(10);
    expect(drawn).toBeLessThan(60);
  });
});

describe('a Kustomization', () => {
  test('shows its way, with the stage that fails and why', async () => {
    hub();
    show('/appliers/Kustomization/apps/payments');
    const stage = (title: string): string | undefined =>
      screen.getAllByRole('listitem').find((item) => item.textContent.startsWith(title))?.textContent;
    await waitFor(() => expect(stage('Health')).toContain('Failed'));
    expect(stage('Apply')).toContain('Done');
    expect(screen.getAllByText(/timed out waiting for: Deployment/).length).toBeGreaterThan(0);
  });

  test('shows the health of its objects and why', async () => {
    hub();
    show('/appliers/Kustomization/apps/payments/objects?view=table');
    const cell = await screen.findByText('In progress');
    const row = cell.closest<HTMLElement>('[role=row]');
    expect(row?.textContent).toContain('Deployment');
    expect(row?.textContent).toContain('Available: 0/1');
  });

  test('is reconciled and suspended, and says so', async () => {
    const { asked } = hub({ [`PATCH ${KUSTOMIZE}/shop`]: recorded.shop });
    show('/appliers/Kustomization/apps/shop');
    await userEvent.click(await screen.findByRole('button', { name: 'Reconcile' }));
    expect(await screen.findByText(/asked to reconcile it now/)).toBeVisible();
    await userEvent.click(screen.getByRole('button', { name: 'Suspend' }));
    expect(await screen.findByText(/Suspended: nothing is reconciled/)).toBeVisible();
    const patches = asked.filter((call) => call.method === 'PATCH');
    expect(patches.map((call) => Object.keys(JSON.parse(call.body) as object))).toEqual([
      ['metadata'],
      ['spec'],
    ]);
    expect(patches[0]?.body).toContain('reconcile.fluxcd.io/requestedAt');
    expect(patches[0]?.headers.get('content-type')).toBe('application/merge-patch+json');
  });

  for (const [code, message, says] of [
    [403, 'may not patch', 'You may not see this'],
    [409, 'the object has been modified', 'It was changed meanwhile'],
    [429, 'too many requests', 'Try again in 7 s.'],
    [500, 'Internal error occurred', 'The hub failed'],
  ] as const) {
    test(`says why an action was not done: ${code}`, async () => {
      hub({ [`PATCH ${KUSTOMIZE}/shop`]: refusal(code, message, { 'retry-after': '7' }) });
      show('/appliers/Kustomization/apps/shop');
      await userEvent.click(await screen.findByRole('button', { name: 'Suspend' }));
      const toast = await screen.findByText(/Could not suspend shop/);
      expect(toast.textContent).toContain(says);
    });
  }

  test('says what the user may not do before it is tried', async () => {
    const { asked } = hub({ [REVIEWS]: refuses('patch', 'RBAC: no role lets eve') });
    show('/appliers/Kustomization/apps/shop');
    expect(await screen.findByText(/You may not change it: RBAC: no role lets eve/)).toBeVisible();
    for (const name of ['Reconcile', 'Suspend']) {
      expect(screen.getByRole('button', { name })).toBeDisabled();
    }
    await userEvent.click(screen.getByRole('button', { name: 'Suspend' }));
    expect(asked.some((call) => call.method === 'PATCH')).toBe(false);
    expect(asked.find((call) => call.path === REVIEWS && call.body.includes('"patch"'))?.body).toContain(
      '"resource":"kustomizations","namespace":"apps","name":"shop"',
    );
  });

  test('names the right that is missing where the hub gives no reason', async () => {
    hub({ [REVIEWS]: refuses('patch', '') });
    show('/appliers/Kustomization/apps/shop');
    const needed =
      'it needs the right to patch kustomizations.kustomize.toolkit.fluxcd.io "shop" in the namespace apps';
    expect(await screen.findByText(`You may not change it: ${needed}`)).toBeVisible();
    const suspend = screen.getByRole('button', { name: 'Suspend' });
    expect(suspend).toHaveAttribute('title', expect.stringContaining(needed));
  });

  test('what delegates is suspended by those who may delegate', async () => {
    const spec = { ...recorded.shop.spec, delegation: { clusters: ['prod'] } };
    hub({
      [`${KUSTOMIZE}/shop`]: { ...recorded.shop, spec },
      [REVIEWS]: refuses('delegate', 'RBAC: no role lets eve delegate'),
    });
    show('/appliers/Kustomization/apps/shop');
    const suspend = await screen.findByRole('button', { name: 'Suspend' });
    await waitFor(() => expect(suspend).toBeDisabled());
    expect(suspend).toHaveAttribute('title', expect.stringContaining('no role lets eve delegate'));
    expect(screen.getByRole('button', { name: 'Reconcile' })).toBeEnabled();
  });

  test('asks for a source by the right to that', async () => {
    hub({ [REVIEWS]: refuses('gitrepositories', 'RBAC: not the source') });
    show('/appliers/Kustomization/apps/shop');
    const both = await screen.findByRole('button', { name: 'With source' });
    await waitFor(() => expect(both).toBeDisabled());
    expect(both).toHaveAttribute('title', expect.stringContaining('RBAC: not the source'));
    expect(screen.getByRole('button', { name: 'Reconcile' })).toBeEnabled();
  });

  test('holds nothing back where the hub does not say', async () => {
    hub({ [REVIEWS]: refusal(500, 'it failed') });
    show('/appliers/Kustomization/apps/shop');
    expect(await screen.findByRole('button', { name: 'Reconcile' })).toBeEnabled();
  });

  test('shows history, events and YAML', async () => {
    hub();
    show('/appliers/Kustomization/apps/shop/history');
    expect((await screen.findAllByText('ReconciliationSucceeded')).length).toBeGreaterThan(0);
    await userEvent.click(screen.getByRole('tab', { name: 'YAML' }));
    const yaml = await screen.findByText(/kind: Kustomization/);
    expect(yaml.textContent).not.toContain('managedFields:');
  });
});

describe('an applier of a kind that the dashboard does not know', () => {
  const id = { kind: 'Rollout', namespace: 'apps', name: 'shop' };
  const path = '/apis/test.example/v2/namespaces/apps/rollouts/shop';
  const sources = [
    { kind: 'GitRepository', namespace: 'apps', name: 'webapp' },
    { kind: 'Bucket', namespace: 'infra', name: 'values' },
  ];
  const item = {
    ...id,
    apiVersion: 'test.example/v2',
    resource: 'rollouts',
    cluster: 'edge',
    labels: {},
    source: sources[0],
    sources,
    path: '',
    revision: 'main@sha1:1',
    suspended: false,
  };
  const object = {
    apiVersion: 'test.example/v2',
    kind: 'Rollout',
    metadata: { name: 'shop', namespace: 'apps' },
    spec: { interval: '7m', clusterRef: { name: 'edge' } },
    status: {
      conditions: recorded.shop.status.conditions,
      inventory: recorded.shop.status.inventory,
      lastAppliedRevision: 'main@sha1:1',
    },
  };
  const answers = {
    // The hub looks for names that hold the one that is asked for.
    '/fleet/v1/appliers': { items: [{ ...item, name: 'shop-2' }, item] },
    [path]: object,
    '/fleet/v1/appliers/Rollout/apps/shop/reconciliations': recorded.shopReconciliations,
  };

  test('has a page with what all appliers have', async () => {
    const { asked } = hub(answers);
    show('/appliers/Rollout/apps/shop');
    expect(await screen.findByText('7m')).toBeVisible();
    expect(screen.getByRole('heading', { name: /shop/ })).toBeVisible();
    expect(screen.getAllByText('ReconciliationSucceeded').length).toBeGreaterThan(0);
    const link = await screen.findByRole('link', { name: 'GitRepository apps/webapp' });
    expect(link).toHaveAttribute('href', '/sources/GitRepository/apps/webapp');
    expect(screen.getByRole('link', { name: 'Bucket infra/values' })).toBeVisible();
    const stages = screen.getAllByRole('listitem').map((stage) => stage.textContent);
    expect(stages.filter((stage) => stage.startsWith('Source')).length).toBe(2);
    await userEvent.click(screen.getByRole('tab', { name: /^Objects/ }));
    expect(await screen.findByRole('tree')).toBeVisible();
    await userEvent.click(screen.getByRole('tab', { name: 'Reconciliations' }));
    expect((await screen.findAllByText('#1')).length).toBeGreaterThan(0);
    const rows = asked.filter((call) => call.path === '/fleet/v1/appliers');
    expect(rows[0]?.query.toString()).toBe('kind=Rollout&namespace=apps&name=shop&limit=500');
  });

  test('says to which revision it is pinned, and what its builds differ in', async () => {
    const [first] = recorded.shopReconciliations.items;
    const items = [{ ...first, attempt: 2, build: 'sha256:2' }, first];
    const build = { started: '2026-01-02T03:04:05Z' };
    const diff = {
      from: { ...build, attempt: 1, revision: 'main@sha1:aaaa' },
      to: { ...build, attempt: 2, revision: 'main@sha1:bbbb' },
      objects: [
        {
          kind: 'Deployment',
          group: 'apps',
          namespace: 'apps',
          name: 'shop',
          change: 'changed',
          fields: [{ path: '.spec.replicas', from: '2', to: '3' }],
        },
      ],
      unchanged: 4,
      objectsLeftOut: 0,
      fieldsLeftOut: 0,
    };
    const { asked } = hub({
      ...answers,
      [path]: { ...object, spec: { ...object.spec, pin: { revision: 'main@sha1:1' } } },
      '/fleet/v1/appliers/Rollout/apps/shop/reconciliations': { items },
      '/fleet/v1/appliers/Rollout/apps/shop/diff': diff,
    });
    show('/appliers/Rollout/apps/shop/history');
    expect((await screen.findByText(/It is pinned to/)).textContent).toContain('does not follow its source');
    // The oldest has nothing to be compared with.
    const compare = await screen.findAllByRole('button', { name: 'Compare with the build before' });
    expect(compare.length).toBe(1);
    if (compare[0]) await userEvent.click(compare[0]);
    const found = await screen.findByRole('region', { name: 'What differs' });
    expect(found.textContent).toContain('changed Deployment / apps / shop');
    expect(found.textContent).toContain('.spec.replicas23');
    const asks = asked.filter((call) => call.path.endsWith('/diff'));
    expect(asks.map((call) => call.query.toString())).toEqual(['to=2']);
  });

  test('shows what has drifted, with what it is and what was applied', async () => {
    const drift = {
      cluster: 'edge',
      applier: { kind: 'Rollout', namespace: 'apps', name: 'shop' },
      group: '',
      version: 'v1',
      kind: 'ConfigMap',
      namespace: 'apps',
      name: 'settings',
      state: 'reported',
      missing: false,
      managers: ['kubectl-edit'],
      fields: [
        { path: '/data/word', told: true, live: '"by hand"', desired: '"git"' },
        { path: '/data/secret', told: false },
      ],
      message: '',
      corrections: 0,
      firstSeen: '2026-01-02T03:04:05Z',
      lastSeen: '2026-01-02T03:04:05Z',
    };
    const over = {
      ...drift,
      name: 'other',
      state: 'corrected',
      corrections: 3,
      ended: '2026-01-02T03:04:06Z',
    };
    const { asked } = hub({ ...answers, '/fleet/v1/drift/objects': { items: [drift, over] } });
    show('/appliers/Rollout/apps/shop/drift');
    const list = await screen.findByRole('list', { name: 'Drift' });
    expect(list.textContent).toContain('Reported, not correctedConfigMap / apps / settings');
    expect(list.textContent).toContain('It was changed by kubectl-edit');
    expect(list.textContent).toContain('/data/word"git""by hand"/data/secret');
    expect(list.textContent).toContain('corrected 3 times');
    const asks = asked.filter((call) => call.path === '/fleet/v1/drift/objects');
    expect(asks[0]?.query.toString()).toBe('applierKind=Rollout&applierNamespace=apps&applier=shop');
  });

  test('is suspended where its kind is served', async () => {
    const { asked } = hub({ ...answers, [`PATCH ${path}`]: object });
    show('/appliers/Rollout/apps/shop');
    await userEvent.click(await screen.findByRole('button', { name: 'Suspend' }));
    expect(await screen.findByText(/Rollout shop: Suspended/)).toBeVisible();
    expect(asked.filter((call) => call.method === 'PATCH').map((call) => call.path)).toEqual([path]);
  });

  test('is listed with its kind, and found by its objects', async () => {
    const [first] = recorded.inventory.items;
    hub({ ...answers, '/fleet/v1/inventory': { items: [{ ...first, name: 'web', applier: id }] } });
    const list = show('/appliers');
    const row = (await screen.findByRole('link', { name: 'shop' })).closest<HTMLElement>('[role=row]');
    expect(row?.textContent).toContain('Rollout');
    expect(row?.textContent).toContain('webapp +1');
    list.unmount();
    show('/search');
    expect(await screen.findByRole('link', { name: 'apps/shop' })).toHaveAttribute(
      'href',
      '/appliers/Rollout/apps/shop',
    );
    expect(screen.getByRole('link', { name: 'web' })).toHaveAttribute(
      'href',
      '/appliers/Rollout/apps/shop/objects?q=web',
    );
  });

  test('is not found where the hub says that no kind of applier has the name', async () => {
    const message = 'kind of applier "Secret" not found';
    const { asked } = hub({ '/fleet/v1/appliers': refusal(404, message) });
    const secret = show('/appliers/Secret/apps/hush');
    expect(await screen.findByText(message)).toBeVisible();
    expect(asked.some((call) => call.path.includes('secrets'))).toBe(false);
    secret.unmount();
    show('/appliers/GitRepository/apps/webapp');
    expect(await screen.findByText('There is no such page')).toBeVisible();
  });
});

describe('an address from before there were other appliers than Kustomizations', () => {
  test('of a page leads to the same page', async () => {
    hub();
    show('/kustomizations/apps/payments/objects?view=table');
    expect(await screen.findByText('In progress')).toBeVisible();
    expect(screen.getByRole('tab', { name: /^Objects/ })).toHaveAttribute('aria-selected', 'true');
  });

  test('of the list leads to the Kustomizations among the appliers', async () => {
    const { asked } = hub();
    show('/kustomizations?state=False');
    expect(await screen.findByRole('link', { name: 'payments' })).toBeVisible();
    const call = asked.find((each) => each.path === '/fleet/v1/appliers');
    expect(call?.query.get('kind')).toBe('Kustomization');
    expect(call?.query.get('state')).toBe('False');
  });
});

test('a source shows its commit where its host does, and whose signature it has', async () => {
  const commit = 'a1'.repeat(20);
  const status = {
    ...recorded.webapp.status,
    artifact: { ...recorded.webapp.status.artifact, revision: `main@sha1:${commit}` },
    conditions: [
      ...recorded.webapp.status.conditions,
      { type: 'SourceVerified', status: 'True', message: "verified signature of commit with key '3299AEB0'" },
    ],
  };
  const spec = { ...recorded.webapp.spec, url: 'https://github.com/org/webapp.git' };
  const path = '/apis/source.toolkit.fluxcd.io/v1/namespaces/apps/gitrepositories/webapp';
  const first =
    (hub({ [path]: { ...recorded.webapp, spec, status } }), show('/sources/GitRepository/apps/webapp'));
  const link = await screen.findByRole('link', { name: new RegExp(commit) });
  expect(link).toHaveAttribute('href', `https://github.com/org/webapp/commit/${commit}`);
  const facts = screen.getByRole('region', { name: 'Details' });
  expect(within(facts).getByText(/verified signature of commit/)).toBeVisible();
  expect(screen.getByRole('heading', { name: 'Appliers that use it' })).toBeVisible();
  first.unmount();
  // Of a host that is not known there is no link, and without a signature nothing is said of one.
  hub();
  show('/sources/GitRepository/apps/webapp');
  const plain = within(await screen.findByRole('region', { name: 'Details' }));
  expect(plain.getByText('Revision')).toBeVisible();
  expect(plain.queryByText('Verified')).toBeNull();
  expect(plain.queryAllByRole('link', { name: /sha1/ })).toHaveLength(0);
});

test('sources, events and search show what there is', async () => {
  const { asked } = hub();
  const first = show('/sources');
  expect(await screen.findByRole('link', { name: 'webapp' })).toBeVisible();
  first.unmount();
  const second = show('/events?type=Warning');
  expect((await screen.findAllByText('HealthCheckFailed')).length).toBeGreaterThan(0);
  second.unmount();
  show('/search?kind=Deployment');
  expect(await screen.findByRole('link', { name: 'payments' })).toBeVisible();
  // What was told of its health; that of one that was not waited for is not known, and is not said to be good.
  expect(screen.getByText('In progress')).toBeVisible();
  expect(screen.getAllByText('Not checked').length).toBeGreaterThan(0);
  expect(screen.queryByText('Applied')).toBeNull();
  const queries = asked.map((call) => call.query.toString());
  expect(queries.some((query) => query.includes('type=Warning'))).toBe(true);
  expect(queries.some((query) => query.includes('kind=Deployment'))).toBe(true);
  expect(asked.some((call) => call.path.includes('secrets'))).toBe(false);
});

describe('the audit log', () => {
  const entry = {
    id: 7,
    at: '2026-01-02T03:04:05Z',
    user: 'alice',
    impersonator: 'root',
    impersonated: { groups: ['dev', 'ops'], leftOut: 3 },
    administrator: true,
    address: '192.0.2.7',
    request: 'r-1',
    verb: 'patch',
    group: 'kustomize.toolkit.fluxcd.io',
    kind: 'Kustomization',
    namespace: 'apps',
    name: 'shop',
    outcome: 'ok',
    detail: '',
    times: 1,
    changes: [
      { path: '.spec.path', from: './old', to: './new' },
      { path: '.metadata.labels', to: { '<b>': '<script>alert(1)</script>' } },
      { note: '12 more fields are left out' },
    ],
    batch: 3,
    signed: true,
  };
  const refused = {
    ...entry,
    id: 6,
    impersonator: undefined,
    impersonated: undefined,
    changes: undefined,
    kind: 'Path',
    name: '/api/v1/secrets',
    namespace: '',
    outcome: 'refused',
    times: 41,
    signed: false,
  };

  test('tells who changed what, with the old and the new', async () => {
    const { asked } = hub({
      '/fleet/v1/audit': ({ query }: { query: URLSearchParams }) =>
        query.has('continue') ? { items: [] } : { items: [entry, refused], continue: '6' },
    });
    show('/audit?kind=Kustomization&user=alice');
    const link = await screen.findByRole('link', { name: 'apps/shop' });
    expect(link).toHaveAttribute('href', '/appliers/Kustomization/apps/shop');
    const item = link.closest('li');
    expect(item?.textContent).toContain('by alice in dev, ops and 3 more (impersonated by root)');
    expect(item?.textContent).toContain('with an administrator’s credential · from 192.0.2.7');
    expect(item?.textContent).toContain('.spec.path./old./new');
    expect(item?.textContent).toContain('<script>alert(1)</script>');
    expect(item?.textContent).toContain('12 more fields are left out');
    expect(screen.getByText(/Somebody without the hub’s key/)).toBeVisible();
    expect(screen.getByText(/41 times/)).toBeVisible();
    const query = asked.find(({ path }) => path === '/fleet/v1/audit')?.query;
    expect(Object.fromEntries(query ?? [])).toEqual({
      kind: 'Kustomization',
      user: 'alice',
      order: 'newest',
      limit: '100',
    });
    await userEvent.click(screen.getByRole('button', { name: 'Show older ones' }));
    await waitFor(() => expect(asked.at(-1)?.query.get('continue')).toBe('6'));
    await userEvent.click(screen.getByRole('button', { name: 'Refused' }));
    await waitFor(() => expect(asked.at(-1)?.query.get('outcome')).toBe('refused'));
  });

  test('is not for everybody', async () => {
    hub({ '/fleet/v1/audit': refusal(403, 'User "eve" cannot get path "/fleet/v1/audit"') });
    show('/audit');
    expect(await screen.findByText('You may not see this')).toBeVisible();
  });

  test('is linked from an object’s page', async () => {
    hub();
    show('/appliers/Kustomization/apps/shop/events');
    const link = await screen.findByRole('link', { name: /Who changed it/ });
    expect(link).toHaveAttribute('href', '/audit?kind=Kustomization&namespace=apps&name=shop');
  });
});

describe('alerts', () => {
  const alert = { kind: 'Alert', namespace: 'apps', name: 'all' };
  const object = { kind: 'Kustomization', namespace: 'apps', name: 'web-edge-1' };
  const incident = {
    id: 'one',
    alert,
    object,
    reason: 'HealthCheckFailed',
    message: 'Deployment/apps/web timed out',
    opened: '2026-08-07T10:00:00Z',
    told: '2026-08-07T10:00:30Z',
    failing: 74,
    failed: 80,
    lapsed: 0,
    failingClusters: 37,
    clusters: 40,
    names: ['edge-1', 'edge-2'],
  };
  const over = { ...incident, id: 'two', ended: '2026-08-07T11:00:00Z', failing: 0, failingClusters: 0 };
  const unheard = { ...over, id: 'three', lapsed: 2 };
  const delivery = {
    id: 7,
    alert,
    object,
    provider: 'chat',
    state: 'failed',
    attempts: 3,
    severity: 'error',
    reason: 'HealthCheckFailed',
    message: 'Fails on 37 of 100 clusters for one cause.',
    made: '2026-08-07T10:00:30Z',
    error: 'it answered HTTP 403',
  };

  test('show incidents with how far they go, and what did not arrive', async () => {
    hub({
      '/fleet/v1/incidents': { items: [incident, over, unheard] },
      '/fleet/v1/deliveries': { items: [delivery] },
      '/fleet/v1/silences': { items: [] },
    });
    show('/alerts');
    const [goes, ended, lapsed] = within(await screen.findByRole('list', { name: 'Incidents' })).getAllByRole(
      'listitem',
    );
    expect(goes?.textContent).toContain('Fails on 37 clusters (74 objects)');
    expect(goes?.textContent).toContain('edge-1, edge-2 and 35 more');
    expect(ended?.textContent).toContain('Resolved It failed on 40 clusters (80 objects)');
    expect(lapsed?.textContent).toContain('Over It failed on 40 clusters (80 objects)');
    const messages = within(await screen.findByRole('list', { name: 'Messages' }));
    expect(messages.getByText('it answered HTTP 403')).toBeVisible();
    expect(messages.getByText('Fails on 37 of 100 clusters for one cause.')).toBeVisible();
  });

  const silence = {
    namespace: 'apps',
    name: 'move',
    reason: 'CHG-1234: the database moves',
    author: 'jane',
    from: '2026-08-07T09:00:00Z',
    until: '2126-08-07T12:00:00Z',
    schedule: '',
    inForceUntil: '2126-08-07T12:00:00Z',
    isOver: false,
    alerts: [],
    objects: ['Kustomization apps/web', 'all on edge-1'],
    keptBack: 3,
  };
  const nightly = {
    ...silence,
    name: 'nightly',
    inForceUntil: null,
    schedule: '0 22 * * * for 8h (UTC)',
    objects: [],
    keptBack: 0,
  };
  const quiet = { '/fleet/v1/incidents': { items: [] }, '/fleet/v1/deliveries': { items: [] } };
  const SILENCES = '/apis/fleet.roadstead.dev/v1alpha1/namespaces/apps/silences';

  test('show what Silences keep back, who made them and why', async () => {
    hub({ ...quiet, '/fleet/v1/silences': { items: [silence, nightly] } });
    show('/alerts');
    const list = within(await screen.findByRole('list', { name: 'Silences' }));
    const [first, second] = list.getAllByRole('listitem');
    expect(first?.textContent).toContain('In force');
    expect(first?.textContent).toContain('by jane');
    expect(first?.textContent).toContain('CHG-1234: the database moves');
    expect(first?.textContent).toContain('Kustomization apps/web; all on edge-1');
    expect(first?.textContent).toContain('keeps back news of 3 objects now');
    expect(second?.textContent).toContain('Not in force');
    expect(second?.textContent).toContain('0 22 * * * for 8h (UTC)');
    expect(second?.textContent).toContain('All Alerts · all objects');
  });

  test('have a Silence made and ended by who may', async () => {
    const { asked } = hub({
      ...quiet,
      '/fleet/v1/silences': { items: [silence] },
      [`POST ${SILENCES}`]: { metadata: { name: 'dashboard-x', namespace: 'apps' } },
      [`DELETE ${SILENCES}/move`]: { kind: 'Status' },
    });
    show('/alerts?namespace=apps');
    await userEvent.click(await screen.findByText('Make a Silence'));
    await userEvent.type(screen.getByLabelText('Why'), 'the database moves');
    await userEvent.selectOptions(screen.getByLabelText('For'), '4 hours');
    await userEvent.type(screen.getByLabelText('Only on cluster'), 'edge-1');
    await userEvent.click(screen.getByRole('button', { name: 'Make it' }));
    await screen.findByText(/dashboard-x: It is in force/);
    const made = asked.find((call) => call.method === 'POST' && call.path === SILENCES);
    const { spec, metadata } = JSON.parse(made?.body ?? '{}') as {
      spec: { until: string };
      metadata: unknown;
    };
    expect(metadata).toEqual({ generateName: 'dashboard-', namespace: 'apps' });
    expect(spec).toMatchObject({ reason: 'the database moves', objects: [{ cluster: 'edge-1' }] });
    const hours = (Date.parse(spec.until) - Date.now()) / 3_600_000;
    expect(hours).toBeGreaterThan(3.9);
    expect(hours).toBeLessThan(4.1);
    await userEvent.click(screen.getByRole('button', { name: 'End Silence apps/move' }));
    await screen.findByText(/move: It is ended/);
    expect(asked.some((call) => call.method === 'DELETE' && call.path === `${SILENCES}/move`)).toBe(true);
  });

  test('say why somebody may make and end no Silence', async () => {
    const { asked } = hub({
      ...quiet,
      '/fleet/v1/silences': { items: [silence] },
      '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews': { status: { allowed: false } },
    });
    show('/alerts?namespace=apps');
    const end = await screen.findByRole('button', { name: 'End Silence apps/move' });
    await waitFor(() => expect(end).toBeDisabled());
    expect(end).toHaveAttribute(
      'title',
      expect.stringContaining('delete silences.fleet.roadstead.dev "move"'),
    );
    await userEvent.click(screen.getByText('Make a Silence'));
    expect(screen.getByRole('button', { name: 'Make it' })).toBeDisabled();
    expect(screen.getByText(/You may not make one there: .*create silences/)).toBeVisible();
    expect(asked.some((call) => call.method === 'DELETE' || call.path === SILENCES)).toBe(false);
  });

  test('are narrowed, and say how to see all', async () => {
    const none = { items: [] };
    const { asked } = hub({
      '/fleet/v1/incidents': none,
      '/fleet/v1/deliveries': none,
      '/fleet/v1/silences': none,
    });
    show('/alerts?open=true&alert=all&state=failed');
    await screen.findByText('No incident is like that');
    await screen.findByText('No message is like that');
    const query = (path: string): string | undefined =>
      asked.find((call) => call.path === path)?.query.toString();
    expect(query('/fleet/v1/incidents')).toBe('alert=all&open=true&limit=50');
    expect(query('/fleet/v1/deliveries')).toBe('alert=all&state=failed&limit=50');
    const [first] = screen.getAllByRole('button', { name: 'Show all' });
    if (first) await userEvent.click(first);
    expect(await screen.findByText('There are no incidents')).toBeVisible();
  });
});
