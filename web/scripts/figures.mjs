// Measures the dashboard in a browser: first load, time from an agent's report to the pixel, the hub's CPU for each open
// page, memory of a page over time. `cargo xtask bench --only dashboard` sets up the hub and its simulated agents, and runs
// this; each line of stdout is a figure, `{"name": …, "values": [[unit, number], …]}`.
//
// FIGURES_HUB, FIGURES_TOKEN and FIGURES_PID are the hub's; FIGURES_PROBE is a Kustomization whose agent says, each time
// that it is reconciled, that it failed and when it said so: `sent at 1700000000000`.
import { readFileSync } from 'node:fs';
import { performance } from 'node:perf_hooks';

import { chromium } from 'playwright-core';

const setting = (name) => {
  const value = process.env[`FIGURES_${name}`];
  if (!value) throw new Error(`FIGURES_${name} is not set: run cargo xtask bench --only dashboard`);
  return value;
};
const [hub, token, pid, probe] = ['HUB', 'TOKEN', 'PID', 'PROBE'].map(setting);
const [clusters, each, minutes] = ['CLUSTERS', 'KUSTOMIZATIONS_OF_EACH', 'MINUTES'].map((name) =>
  Number(setting(name)),
);
/** Reconciliations per second while pages are open. */
const RATE = 16;
const LOADS = 5;
const REPORTS = 200;
/** How long the hub's CPU is looked at, each time. */
const SECONDS = 60;
const TICKS_PER_SECOND = 100;
const KUSTOMIZATIONS = '/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/default/kustomizations';
const VIEW = { ignoreHTTPSErrors: true, viewport: { width: 1360, height: 860 } };

const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const quantile = (sorted, q) => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))];
const by = (key) => (a, b) => a[key] - b[key];
const tell = (name, values) => process.stdout.write(`${JSON.stringify({ name, values })}\n`);

/** Seconds of CPU that the hub has used. */
function cpu() {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ');
  return (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND;
}

async function percentOver(seconds) {
  const [before, begin] = [cpu(), performance.now()];
  await sleep(seconds * 1000);
  return ((cpu() - before) / ((performance.now() - begin) / 1000)) * 100;
}

/** Has a Kustomization reconciled: its agent reports. */
async function reconcile(name) {
  const annotations = { 'reconcile.fluxcd.io/requestedAt': `${Date.now()}.${Math.random()}` };
  const response = await fetch(`${hub}${KUSTOMIZATIONS}/${name}`, {
    method: 'PATCH',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/merge-patch+json' },
    body: JSON.stringify({ metadata: { annotations } }),
  });
  if (!response.ok) throw new Error(`${name}: ${response.status} ${await response.text()}`);
  await response.arrayBuffer();
}

const browser = await chromium.launch({
  executablePath: setting('CHROMIUM'),
  headless: true,
  args: ['--no-sandbox', '--disable-gpu'],
});

/** A page as someone has it who was never here before. */
async function open(path) {
  const context = await browser.newContext(VIEW);
  await context.addInitScript((held) => sessionStorage.setItem('roadstead.token', held), token);
  const page = await context.newPage();
  await page.goto(`${hub}/ui${path}`);
  return page;
}

async function firstLoad() {
  const begin = performance.now();
  const page = await open('/');
  await page.locator('.vbody .vrow').nth(5).waitFor();
  const ms = performance.now() - begin;
  const sizes = await page.evaluate(() => {
    const all = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')];
    const sum = (part) =>
      all
        .filter((entry) => new URL(entry.name).pathname.startsWith(part))
        .reduce((bytes, entry) => bytes + entry.transferSize, 0);
    const asked = all.find((entry) => new URL(entry.name).pathname === '/fleet/v1/clusters');
    return {
      files: sum('/ui/'),
      data: sum('/fleet/'),
      waited: asked ? asked.responseEnd - asked.startTime : 0,
    };
  });
  await page.context().close();
  return { ms, ...sizes };
}

/** How long it takes from an agent's report until the page shows it, in milliseconds. */
async function reportsToPixels() {
  const page = await open(`/appliers?name=${probe}`);
  await page.getByRole('link', { name: probe }).waitFor();
  await page.getByText('Live', { exact: true }).waitFor();
  const shown = () =>
    page.evaluate(() => /sent at (\d+)/.exec(document.querySelector('.vbody')?.textContent ?? '')?.[1]);
  const latencies = [];
  for (let run = 0; run < REPORTS; run += 1) {
    const last = await shown();
    const seen = page.evaluate(
      (before) =>
        new Promise((resolve) => {
          const look = () => {
            const sent = /sent at (\d+)/.exec(document.querySelector('.vbody')?.textContent ?? '')?.[1];
            // What is in the document now is painted before the next frame's callback.
            if (sent && sent !== before) requestAnimationFrame(() => resolve(Date.now() - Number(sent)));
            else requestAnimationFrame(look);
          };
          look();
        }),
      last,
    );
    await reconcile(probe);
    latencies.push(await seen);
    await sleep(100);
  }
  await page.context().close();
  return latencies.sort((a, b) => a - b);
}

const loads = [];
for (let run = 0; run < LOADS; run += 1) loads.push(await firstLoad());
loads.sort(by('ms'));
const { ms, waited, files, data } = loads[Math.floor(LOADS / 2)];
tell('first load', [
  ['ms', ms],
  ['ms of that for the list of clusters', waited],
  ['bytes of files', files],
  ['bytes of data', data],
]);

const latencies = await reportsToPixels();
tell('report to pixel', [
  ['p50 ms', quantile(latencies, 0.5)],
  ['p99 ms', quantile(latencies, 0.99)],
]);

// Reconciliations at a steady rate: the hub alone, and with pages open.
let updating = true;
let made = 0;
const updates = (async () => {
  while (updating) {
    const next = performance.now() + 1000 / RATE;
    const cluster = Math.floor(Math.random() * clusters);
    // The first of a cluster may be one that fails, which has another name.
    const number = 1 + Math.floor(Math.random() * (each - 1));
    await reconcile(`app-${number}-edge-${cluster}`);
    made += 1;
    await sleep(Math.max(0, next - performance.now()));
  }
})();
await sleep(5_000);
const alone = await percentOver(SECONDS);
const first = await open('/');
await first.locator('.vbody .vrow').nth(5).waitFor();
const session = await first.context().newCDPSession(first);
await session.send('Performance.enable');
const memory = async (name) => {
  await session.send('HeapProfiler.collectGarbage');
  const { metrics } = await session.send('Performance.getMetrics');
  const of = (metric) => metrics.find((each) => each.name === metric)?.value ?? 0;
  tell(name, [
    ['MB of heap', of('JSHeapUsedSize') / 1e6],
    ['nodes', of('Nodes')],
    ['reports so far', made],
  ]);
};
await sleep(5_000);
await memory('a page at first');
const withOne = await percentOver(SECONDS);
const pages = [];
for (let index = 0; index < 4; index += 1) pages.push(await open('/'));
await sleep(10_000);
const withFive = await percentOver(SECONDS);
for (const page of pages) await page.context().close();
tell(`the hub at ${RATE} reports per second`, [
  ['% of a core without a page', alone],
  ['% of a core with 1 page', withOne],
  ['% of a core with 5 pages', withFive],
]);
const STEP = 10;
for (let at = STEP; at < minutes; at += STEP) {
  await sleep(STEP * 60_000);
  await memory(`a page after ${at} minutes`);
}
await sleep((minutes % STEP || STEP) * 60_000);
await memory(`a page after ${minutes} minutes`);
updating = false;
await updates;
await browser.close();
