/** The pages over what a real hub has answered. */
import { screen, waitFor, within } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { describe, expect, test } from 'vitest';

import { KUSTOMIZE, hub, recorded, refusal, show } from './hub';

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
    expect(asked[0]?.headers.get('authorization')).toBe('Bearer rsdt_test');
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
