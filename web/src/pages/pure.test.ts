/** What the pages reckon, without a page. */
import { describe, expect, test } from 'vitest';

import type { Applier, Source } from '../api/kinds';
import type { ClusterItem, Reconciliations } from '../api/queries';
import { age, duration, parseDuration, span } from '../lib/time';
import { commitAddress, matches, shortRevision, webAddress } from '../lib/words';
import { yamlOf } from '../ui/Yaml';
import { clusterState, fits, fleetRows } from './fleet/clusters';
import { ownedObjects, parseEntry, tree } from './applier/objects';
import { kustomization } from './applier/kinds/kustomization';
import { stages, timingsOf } from './applier/stages';

const NOW = Date.parse('2026-01-02T03:04:05Z');

test('a Kustomization tells whose keys it was decrypted with', () => {
  const object = (spec: object, status: object) =>
    ({ apiVersion: 'v1', kind: 'Kustomization', metadata: { name: 'app' }, spec, status }) as Applier;
  const told = (spec: object, status: object) =>
    kustomization.details?.(object(spec, status)).find(([title]) => title === 'Decrypted with');
  const spec = { decryption: { provider: 'sops', secretRef: { name: 'sops-age' } } };
  expect(told({}, {})).toBeUndefined();
  expect(told(spec, {})).toEqual(['Decrypted with', 'Secret sops-age']);
  const lookups = [{ kind: 'Secret', name: 'sops-age', location: 'Cluster' }];
  expect(told(spec, { lookups })).toEqual(['Decrypted with', 'Secret sops-age in the cluster']);
  const keys = kustomization.details?.(object(spec, { decryptedWith: ['age age1a', 'pgp 8F4A'] }));
  expect(keys).toContainEqual(['Decryption keys', 'age age1a, pgp 8F4A']);
  const account = { provider: 'sops', serviceAccountName: 'keys' };
  const services = 'key services, asked by the hub as ServiceAccount keys';
  expect(told({ decryption: account }, {})).toEqual(['Decrypted with', services]);
  const both = { decryption: { ...spec.decryption, ...account } };
  expect(told(both, { lookups })).toEqual([
    'Decrypted with',
    `Secret sops-age in the cluster and ${services}`,
  ]);
});

describe('times', () => {
  test('are in words', () => {
    expect(span(0)).toBe('0s');
    expect(span(90_000)).toBe('1m 30s');
    expect(span(26 * 3_600_000)).toBe('1d 2h');
    expect(span(800 * 86_400_000)).toBe('2y 70d');
    expect(age(NOW - 400, NOW)).toBe('now');
    expect(age(NOW + 600_000, NOW)).toBe('in 10m');
    expect(duration(0.4)).toBe('0.4 ms');
    expect(duration(1_449)).toBe('1.4 s');
  });

  test('of the hub are read', () => {
    expect(parseDuration('1m0.5s')).toBe(60_500);
    expect(parseDuration('3.678391s')).toBeCloseTo(3678.391);
    expect(parseDuration('85.5ms')).toBe(85.5);
    for (const bad of ['', 'x', '1', '1m x', '-1s']) expect(parseDuration(bad), bad).toBeNull();
  });
});

test('addresses of the web', () => {
  expect(webAddress('https://example.com/a?b#c')).toBe('https://example.com/a?b#c');
  for (const bad of ['javascript:1', 'https:', 'http://', 'https://a:b@c/', 'ftp://a/', '/a', '']) {
    expect(webAddress(bad), bad).toBeNull();
  }
});

test('words and revisions', () => {
  expect(matches('web Prod', ['my-web', 'production'])).toBe(true);
  expect(matches('web x', ['my-web'])).toBe(false);
  expect(shortRevision(`main@sha1:${'a1'.repeat(20)}`)).toBe('main@sha1:a1a1a1a1');
});

test('commits are shown where the host is known', () => {
  const commit = 'a1'.repeat(20);
  const of = (repository: string, revision = `main@sha1:${commit}`) => commitAddress(repository, revision);
  expect(of('https://github.com/org/app')).toBe(`https://github.com/org/app/commit/${commit}`);
  expect(of('ssh://git@GitHub.com/org/app.git')).toBe(`https://github.com/org/app/commit/${commit}`);
  expect(of('https://gitlab.com/a/b/c.git')).toBe(`https://gitlab.com/a/b/c/-/commit/${commit}`);
  expect(of('ssh://git@bitbucket.org:22/a/b')).toBe(`https://bitbucket.org/a/b/commits/${commit}`);
  for (const other of [
    'https://git.corp/org/app',
    'https://github.com.evil.example/org/app',
    'https://evil.example/github.com/app',
    'https://github.com',
    'https://github.com/org/app?x=1',
    'javascript://github.com/a/b',
    'https://constructor/a/b',
  ]) {
    expect(of(other), other).toBeNull();
  }
  expect(of('https://github.com/org/app', 'v1@sha256:' + 'a'.repeat(64))).toBeNull();
  expect(commitAddress('https://github.com/org/app', undefined)).toBeNull();
});

function cluster(name: string, more: Partial<ClusterItem> = {}): ClusterItem {
  return {
    name,
    labels: {},
    appliers: { True: 1 },
    failing: [],
    objects: 1,
    connection: { connected: true, since: '2026-01-01T00:00:00Z' },
    ...more,
  };
}

describe('clusters', () => {
  const failing = cluster('b', { appliers: { True: 3, False: 2 }, labels: { region: 'north' } });
  const away = cluster('c', { connection: { connected: false, since: '' }, labels: { region: 'south=1' } });
  const never = cluster('d', { connection: null });

  test('have the state of the worst on them', () => {
    expect([cluster('a'), failing, away, never].map(clusterState)).toEqual([
      'ok',
      'failing',
      'away',
      'waiting',
    ]);
  });

  test('are found by words and labels', () => {
    expect(fits(failing, 'region=north b')).toBe(true);
    expect(fits(failing, 'region=nor')).toBe(false);
    expect(fits(failing, 'nor')).toBe(true);
    expect(fits(away, 'region=south=1')).toBe(true);
    expect(fits(failing, 'region=')).toBe(true);
    expect(fits(never, 'region=')).toBe(false);
  });

  test('are sorted, the worst first, and grouped', () => {
    const view = { q: '', state: '', sort: '', group: '' };
    const all = [cluster('a'), failing, away, never];
    const names = (rows: ReturnType<typeof fleetRows>): string[] =>
      rows.map((row) => ('group' in row ? `[${row.group}]` : row.cluster.name));
    expect(names(fleetRows(all, view, new Set()))).toEqual(['b', 'c', 'd', 'a']);
    expect(
      names(fleetRows(all, { ...view, group: 'label:region', sort: 'name' }, new Set(['without region']))),
    ).toEqual(['[region=north]', 'b', '[region=south=1]', 'c', '[without region]']);
  });
});

function applier(reason: string, status = 'False'): Applier {
  return {
    apiVersion: 'v1',
    kind: 'Kustomization',
    metadata: { name: 'app', namespace: 'apps', managedFields: [1] },
    status: {
      conditions: [{ type: 'Ready', status, reason, message: 'why' }],
      inventory: {
        entries: [
          { id: 'ns_app_apps_Deployment', v: 'v1' },
          { id: 'ns_app-2_apps_Deployment', v: 'v1' },
        ],
      },
    },
  };
}

function history(reason: string, more: object = {}): Reconciliations {
  const attempt = {
    attempt: 3,
    generation: 1,
    build: 'sha256:1234567890abcdef',
    deletes: false,
    started: '2026-01-01T00:00:00Z',
    took: '1s',
    reason,
    message: 'Deployment/ns/app-2 is invalid',
    counts: {},
    changeSet: [],
    timings: [
      { step: 0, label: 'apply', stage: 'finish', micros: 10 },
      { step: 0, label: 'apply', stage: 'validate', micros: 2000 },
      { step: 0, label: 'apply', stage: 'apply', micros: 3000 },
    ],
    ...more,
  };
  return { items: [attempt] };
}

const SOURCE: Source = {
  apiVersion: 'v1',
  kind: 'GitRepository',
  metadata: { name: 'repo' },
  status: { conditions: [{ type: 'Ready', status: 'True' }], artifact: { revision: 'main@sha1:1' } },
};

const SOURCES = [{ id: { kind: 'GitRepository', namespace: 'apps', name: 'repo' }, object: SOURCE }];

describe('stages', () => {
  const of = (object: Applier, told: Reconciliations | undefined): string =>
    stages({ object, sources: SOURCES, cluster: cluster('edge'), clusterName: 'edge', history: told })
      .map((stage) => stage.state)
      .join(' ');

  test('stop where it failed', () => {
    expect(of(applier('ValidationFailed'), history('ValidationFailed'))).toBe(
      'ok ok ok ok failing skipped skipped skipped',
    );
    expect(of(applier('HealthCheckFailed'), history('HealthCheckFailed'))).toBe(
      'ok ok ok ok ok ok skipped failing',
    );
    expect(of(applier('BuildFailed'), history('BuildFailed', { build: null, timings: [] }))).toBe(
      'ok failing ok skipped skipped skipped skipped skipped',
    );
    expect(of(applier('DependencyNotReady'), undefined)).toBe(
      'ok waiting ok waiting waiting waiting waiting waiting',
    );
  });

  test('go on while it is under way', () => {
    const told = history('', { reason: null });
    told.underWay = {
      attempt: 3,
      cluster: 'edge',
      step: 0,
      label: 'apply',
      stage: 'apply',
      results: [],
      health: {},
    };
    const object = applier('Progressing', 'Unknown');
    expect(of(object, told)).toBe('ok ok ok ok ok progressing waiting waiting');
    const shown = stages({
      object,
      sources: SOURCES,
      cluster: cluster('edge'),
      clusterName: 'edge',
      history: told,
    });
    expect(shown.find((stage) => stage.id === 'apply')?.detail).toBe('1 apply: 0 objects so far');
    // Waiting between two groups, of which neither was pruned.
    told.underWay = { ...told.underWay, step: 1, label: 'wait', stage: 'wait' };
    expect(of(object, told)).toBe('ok ok ok ok ok ok unknown progressing');
  });

  test('say no more than what an agent tells', () => {
    const details = (timings: unknown[]) =>
      stages({
        object: applier('ReconciliationSucceeded', 'True'),
        sources: SOURCES,
        cluster: cluster('edge'),
        clusterName: 'edge',
        history: history('ReconciliationSucceeded', { timings }),
      })
        .slice(3)
        .map((stage) => stage.detail);
    const done = ['finish', 'validate', 'apply'].map((stage, step) => ({ step, stage, micros: 10 }));
    const nothing = ['nothing to do', 'not waited for'];
    // Whether anything was decrypted or substituted is not told.
    expect(details(done)).toEqual([
      'objects ready',
      'accepted by the API server',
      'written what differed',
      ...nothing,
    ]);
    expect(details([])).toEqual(['nothing to do', 'nothing to do', 'nothing to do', ...nothing]);
  });

  test('begin with each source', () => {
    const other = { id: { kind: 'Other', namespace: 'apps', name: 'values' }, object: undefined };
    const of = (sources: Parameters<typeof stages>[0]['sources']): unknown[] =>
      stages({
        object: applier('ReconciliationSucceeded', 'True'),
        sources,
        cluster: cluster('edge'),
        clusterName: 'edge',
        history: undefined,
      })
        .filter((stage) => stage.title === 'Source')
        .map(({ state, detail, to }) => [state, detail, to]);
    const page = '/sources/GitRepository/apps/repo';
    expect(of(SOURCES)).toEqual([['ok', 'main@sha1:1', page]]);
    // A source of a kind that has no page is named all the same.
    expect(of([...SOURCES, other])).toEqual([
      ['ok', 'repo main@sha1:1', page],
      ['unknown', 'Other values', undefined],
    ]);
    expect(of([])).toEqual([['unknown', 'none named', undefined]]);
  });

  test('are those of all steps', () => {
    const timings = [
      { step: 0, label: 'crds', stage: 'apply', micros: 1_000_000 },
      { step: 1, label: 'apps', stage: 'apply', micros: 2_000_000 },
      { step: 2, label: 'prune', stage: 'prune', micros: 5_000 },
    ];
    const told = history('ReconciliationSucceeded', { timings });
    const shown = stages({
      object: applier('ReconciliationSucceeded', 'True'),
      sources: SOURCES,
      cluster: cluster('edge'),
      clusterName: 'edge',
      history: told,
    });
    const apply = shown.find((stage) => stage.id === 'apply');
    expect([apply?.took, apply?.detail]).toEqual(['3.0 s', '1 crds 1.0 s, 2 apps 2.0 s']);
    expect(timingsOf(timings)).toBe('1 crds: apply 1.0 s · 2 apps: apply 2.0 s · 3 prune: prune 5 ms');
    // As an agent of an older version tells it.
    expect(timingsOf([{ stage: 'apply', micros: 5_000 }])).toBe('apply 5 ms');
  });
});

describe('objects', () => {
  test('are read from an inventory', () => {
    expect(parseEntry('ns_a__b_rbac_Role', 'v1')).toMatchObject({
      namespace: 'ns',
      name: 'a:b',
      group: 'rbac',
      kind: 'Role',
    });
    expect(parseEntry('_system__node_rbac_ClusterRole', 'v1')?.name).toBe('system:node');
    expect(parseEntry('ns_settings__ConfigMap', 'v1')).toMatchObject({ name: 'settings', group: '' });
    expect(parseEntry('nonsense', 'v1')).toBeNull();
  });

  test('have the health that was told, or is named by the failure', () => {
    const [app, second] = ownedObjects(applier('ValidationFailed'), history('ValidationFailed'));
    expect([app?.state, second?.state]).toEqual(['unknown', 'failing']);
    const health = { 'Deployment/ns/app': 'InProgress: 0 of 1', 'Deployment/ns/app-2': 'Current: fine' };
    const told = ownedObjects(
      applier('HealthCheckFailed'),
      history('HealthCheckFailed', { health, message: 'x' }),
    );
    expect(told.map((object) => [object.word, object.why])).toEqual([
      ['In progress', '0 of 1'],
      ['Healthy', 'fine'],
    ]);
  });

  test('are a tree, whose branches have the state of the worst beneath', () => {
    const objects = ownedObjects(applier('ValidationFailed'), history('ValidationFailed'));
    const rows = tree(objects, new Set());
    expect(rows.map((row) => [row.depth, row.state])).toEqual([
      [1, 'failing'],
      [2, 'failing'],
      [3, 'unknown'],
      [3, 'failing'],
    ]);
    expect(tree(objects, new Set(['ns ns'])).length).toBe(1);
  });
});

test('YAML leaves out who manages what', () => {
  const text = yamlOf(applier('x'));
  expect(text).toContain('name: app');
  expect(text).not.toContain('managedFields');
});
