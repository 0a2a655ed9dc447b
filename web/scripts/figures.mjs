// Measures the dashboard before a hub with many clusters: first load, time from a change on the hub to the pixel, memory of
// the page, and the hub's CPU for each open page.
//
//   FIGURES_HUB=https://127.0.0.1:7443 FIGURES_TOKEN=… FIGURES_PID=(of the hub) FIGURES_MINUTES=5 FIGURES_RATE=16
//   FIGURES_CHROMIUM=/usr/bin/chromium NODE_TLS_REJECT_UNAUTHORIZED=0 node scripts/figures.mjs
//
// The changes are made through the API, by writing statuses as an agent's reports do: Kustomizations k-0000 … of the
// namespace `figures`, which must be there.
import { readFileSync } from 'node:fs';
import { performance } from 'node:perf_hooks';

import { chromium } from 'playwright-core';

const {
  FIGURES_HUB: hub,
  FIGURES_TOKEN: token,
  FIGURES_PID: pid,
  FIGURES_CHROMIUM: executablePath,
} = process.env;
const minutes = Number(process.env.FIGURES_MINUTES ?? 5);
const rate = Number(process.env.FIGURES_RATE ?? 16);
const KS = '/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/figures/kustomizations';

const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const quantile = (sorted, q) => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))];
const round = (number) => Math.round(number * 10) / 10;

/** Seconds of CPU that the hub has used. */
function cpu() {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ');
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

/** Has one Kustomization say something new, as a report does. */
async function report(index, status, message) {
  const name = `k-${String(index).padStart(4, '0')}`;
  const at = new Date().toISOString().replace(/\.\d+/, '');
  const ready = {
    type: 'Ready',
    status,
    reason: status === 'True' ? 'ReconciliationSucceeded' : 'HealthCheckFailed',
  };
  const conditions = [{ ...ready, message, lastTransitionTime: at, observedGeneration: 1 }];
  const response = await fetch(`${hub}${KS}/${name}/status`, {
    method: 'PATCH',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/merge-patch+json' },
    body: JSON.stringify({ status: { conditions } }),
  });
  if (!response.ok) throw new Error(`${name}: ${response.status} ${await response.text()}`);
}

async function cpuOver(seconds) {
  const [before, begin] = [cpu(), performance.now()];
  await sleep(seconds * 1000);
  return ((cpu() - before) / ((performance.now() - begin) / 1000)) * 100;
}

const browser = await chromium.launch({
  executablePath,
  headless: true,
  args: ['--no-sandbox', '--disable-gpu'],
});
const open = async (path) => {
  const context = await browser.newContext({
    ignoreHTTPSErrors: true,
    viewport: { width: 1360, height: 860 },
  });
  await context.addInitScript((held) => sessionStorage.setItem('roadstead.token', held), token);
  const page = await context.newPage();
  await page.goto(`${hub}/ui${path}`);
  return page;
};

// First load, with nothing cached: three times, the middle one counts.
const loads = [];
for (let run = 0; run < 3; run += 1) {
  const context = await browser.newContext({
    ignoreHTTPSErrors: true,
    viewport: { width: 1360, height: 860 },
  });
  await context.addInitScript((held) => sessionStorage.setItem('roadstead.token', held), token);
  const page = await context.newPage();
  const begin = performance.now();
  await page.goto(`${hub}/ui/`);
  await page.locator('.vbody .vrow').nth(5).waitFor();
  const took = performance.now() - begin;
  const sizes = await page.evaluate(() => {
    const all = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')];
    const sum = (found) => found.reduce((bytes, entry) => bytes + entry.transferSize, 0);
    return {
      files: sum(all.filter((entry) => entry.name.includes('/ui/'))),
      data: sum(all.filter((entry) => entry.name.includes('/fleet/'))),
    };
  });
  loads.push({ took, ...sizes });
  await context.close();
}
loads.sort((a, b) => a.took - b.took);
console.log('first load', JSON.stringify(loads[1]));

// From the hub's answer to a report until the page shows it.
const page = await open('/kustomizations?namespace=figures&name=k-0001');
await page.getByRole('link', { name: 'k-0001' }).waitFor();
await page.getByText('Live', { exact: true }).waitFor();
const latencies = [];
for (let run = 0; run < 100; run += 1) {
  const bad = run % 2 === 0;
  const seen = page.evaluate(
    (word) =>
      new Promise((resolve) => {
        const look = () => {
          const row = [...document.querySelectorAll('.vbody .vrow')].find((each) =>
            each.textContent.includes('k-0001'),
          );
          if (row?.querySelector(word)) requestAnimationFrame(() => resolve(Date.now()));
          else requestAnimationFrame(look);
        };
        look();
      }),
    bad ? '.status.is-failing' : '.status.is-ok',
  );
  await report(1, bad ? 'False' : 'True', `run ${run}`);
  const begin = Date.now();
  latencies.push((await seen) - begin);
  await sleep(150);
}
latencies.sort((a, b) => a - b);
console.log(`report to pixel: p50 ${quantile(latencies, 0.5)} ms, p99 ${quantile(latencies, 0.99)} ms`);
await page.context().close();

// Updates at a steady rate: the hub alone, and with pages open.
let updating = true;
let made = 0;
const updates = (async () => {
  while (updating) {
    const next = performance.now() + 1000 / rate;
    const index = Math.floor(Math.random() * 10_000);
    await report(index, Math.random() < 0.05 ? 'False' : 'True', `update ${made}`);
    made += 1;
    await sleep(Math.max(0, next - performance.now()));
  }
})();
await sleep(3_000);
const seconds = 30;
const alone = await cpuOver(seconds);
const pages = [await open('/')];
await sleep(5_000);
const [first] = pages;
const session = await first.context().newCDPSession(first);
await session.send('Performance.enable');
const heap = async () => {
  await session.send('HeapProfiler.collectGarbage');
  const { metrics } = await session.send('Performance.getMetrics');
  const of = (name) => metrics.find((metric) => metric.name === name)?.value ?? 0;
  return `${round(of('JSHeapUsedSize') / 1e6)} MB, ${of('Nodes')} nodes`;
};
console.log(`page at first: ${await heap()}`);
const withOne = await cpuOver(seconds);
for (let index = 0; index < 4; index += 1) pages.push(await open('/'));
await sleep(10_000);
const withFive = await cpuOver(seconds);
console.log(
  `hub CPU at ${rate} reports/s: ${round(alone)} % alone, ${round(withOne)} % with 1 page, ${round(withFive)} % with 5`,
);
const until = performance.now() + minutes * 60_000;
while (performance.now() < until) {
  await sleep(Math.min(60_000, until - performance.now()));
  console.log(`page after ${made} updates: ${await heap()}`);
}
updating = false;
await updates;
await browser.close();
