// Records what a real hub answers, for the tests of the pages' parts. Run with the environment of the browser's tests
// (tests/tests/e2e/dashboard.rs) while their fleet is up; NODE_TLS_REJECT_UNAUTHORIZED=0 for the hub's own certificate.
import { writeFileSync } from 'node:fs';

const { DASHBOARD_HUB: hub, DASHBOARD_TOKEN: token } = process.env;
const apps = 'namespaces/apps';
const kustomize = `/apis/kustomize.toolkit.fluxcd.io/v1/${apps}/kustomizations`;
const source = '/apis/source.toolkit.fluxcd.io/v1';
const ANSWERS = {
  clusters: '/fleet/v1/clusters',
  appliers: '/fleet/v1/appliers',
  events: '/fleet/v1/events',
  inventory: '/fleet/v1/inventory?kind=Deployment',
  shop: `${kustomize}/shop`,
  payments: `${kustomize}/payments`,
  'shop-reconciliations': '/fleet/v1/appliers/Kustomization/apps/shop/reconciliations?changedOnly=true',
  'payments-reconciliations':
    '/fleet/v1/appliers/Kustomization/apps/payments/reconciliations?changedOnly=true',
  webapp: `${source}/${apps}/gitrepositories/webapp`,
  gitrepositories: `${source}/gitrepositories`,
};
for (const [name, path] of Object.entries(ANSWERS)) {
  const response = await fetch(new URL(path, hub), { headers: { authorization: `Bearer ${token}` } });
  if (!response.ok) throw new Error(`${path}: ${response.status}`);
  const text = JSON.stringify(await response.json(), null, 1);
  writeFileSync(new URL(`../src/test/recorded/${name}.json`, import.meta.url), `${text}\n`);
}
