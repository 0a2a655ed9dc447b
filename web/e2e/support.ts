/** A browser before the real hub, with a way to the hub that can be cut. */
import { mkdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Server, Socket } from 'node:net';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';

import type { Browser, BrowserContext, Page } from 'playwright-core';
import { chromium } from 'playwright-core';
import { expect } from 'vitest';

function given(name: string): string {
  const value = process.env[name];
  if (value === undefined || value === '') {
    throw new Error(`${name} is not set: run cargo xtask test -- -p roadstead-tests --test dashboard`);
  }
  return value;
}

export const hub = new URL(given('DASHBOARD_HUB'));
export const token = given('DASHBOARD_TOKEN');
export const guestToken = given('DASHBOARD_GUEST_TOKEN');
export const secret = given('DASHBOARD_SECRET');
const pictures = given('DASHBOARD_PICTURES');
mkdirSync(pictures, { recursive: true });

/** A way to the hub: bytes in both directions, until it is cut. */
export class Way {
  private readonly sockets = new Set<Socket>();
  private cutOff = false;

  private constructor(private readonly server: Server) {
    server.on('connection', (client) => this.pipe(client));
  }

  static async open(): Promise<Way> {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return new Way(server);
  }

  get origin(): string {
    const address = this.server.address();
    if (address === null || typeof address === 'string') throw new Error('the way has no port');
    return `https://127.0.0.1:${address.port}`;
  }

  private pipe(client: Socket): void {
    if (this.cutOff) {
      client.destroy();
      return;
    }
    const upstream = connect(Number(hub.port), hub.hostname);
    for (const [one, other] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      this.sockets.add(one);
      one.pipe(other);
      one.on('error', () => other.destroy());
      one.on('close', () => {
        this.sockets.delete(one);
        other.destroy();
      });
    }
  }

  cut(): void {
    this.cutOff = true;
    for (const socket of this.sockets) socket.destroy();
  }

  restore(): void {
    this.cutOff = false;
  }

  close(): void {
    this.cut();
    this.server.close();
  }
}

/** A request to the hub as the administrator, beside the browser. */
export async function ask(
  context: BrowserContext,
  method: string,
  path: string,
  body?: unknown,
): Promise<unknown> {
  const response = await context.request.fetch(new URL(path, hub).href, {
    method,
    headers: {
      authorization: `Bearer ${token}`,
      'content-type': method === 'PATCH' ? 'application/merge-patch+json' : 'application/json',
    },
    ...(body === undefined ? {} : { data: body }),
  });
  expect(response.ok(), `${method} ${path}: ${response.status()}`).toBe(true);
  return response.json();
}

export async function launch(): Promise<Browser> {
  return chromium.launch({
    executablePath: given('DASHBOARD_CHROMIUM'),
    headless: true,
    args: ['--no-sandbox', '--disable-gpu', '--force-color-profile=srgb'],
  });
}

/** What no page may do: fail, break the hub's policy, ask for Secrets, or put the token into an address. */
export interface Watch {
  wrongs: string[];
  requests: string[];
}

export interface Visit {
  context: BrowserContext;
  page: Page;
  watch: Watch;
}

export async function visit(
  browser: Browser,
  origin: string,
  options: { width?: number; height?: number; dark?: boolean } = {},
): Promise<Visit> {
  const context = await browser.newContext({
    baseURL: origin,
    ignoreHTTPSErrors: true,
    viewport: { width: options.width ?? 1360, height: options.height ?? 860 },
    colorScheme: options.dark ? 'dark' : 'light',
    locale: 'en-GB',
    timezoneId: 'UTC',
    reducedMotion: 'reduce',
  });
  const page = await context.newPage();
  const watch: Watch = { wrongs: [], requests: [] };
  page.on('pageerror', (error) => watch.wrongs.push(`error: ${error.message}`));
  page.on('console', (message) => {
    // A request that the hub refuses, or that is cut, is a line of the console; the tests look at what the page says then.
    if (message.type() === 'error' && !message.text().startsWith('Failed to load resource')) {
      watch.wrongs.push(`console: ${message.text()}`);
    }
  });
  page.on('request', (request) => watch.requests.push(request.url()));
  return { context, page, watch };
}

export function expectNothingWrong({ watch }: Visit): void {
  expect(watch.wrongs).toEqual([]);
  expect(watch.requests.filter((url) => /\/secrets(\/|\?|$)/.test(url))).toEqual([]);
  expect(watch.requests.filter((url) => url.includes(token))).toEqual([]);
}

export async function login(page: Page, as = token): Promise<void> {
  await page.getByLabel('Token').fill(as);
  await page.getByRole('button', { name: 'Log in' }).click();
}

/** Opens a page of the dashboard as the administrator. */
export async function open({ page }: Visit, path: string): Promise<void> {
  await page.goto(`/ui${path}`);
  // Before the hub has said who it is, there is neither.
  const [asked, pages] = [page.getByLabel('Token'), page.getByRole('navigation', { name: 'Pages' })];
  await asked.or(pages).first().waitFor();
  if (await asked.isVisible()) await login(page);
  await pages.waitFor();
}

/** Keeps a picture of what is seen. */
export async function picture(page: Page, name: string): Promise<void> {
  await page.screenshot({ path: join(pictures, `${name}.png`), animations: 'disabled' });
}

const axeSource = createRequire(import.meta.url).resolve('axe-core/axe.min.js');

interface AxeResult {
  violations: { id: string; help: string; nodes: { html: string; failureSummary?: string }[] }[];
}

/** Fails where axe finds something wrong with the page. It is run by the debugger, which no policy of the page holds. */
export async function expectAccessible(page: Page, what: string): Promise<void> {
  const { readFileSync } = await import('node:fs');
  const session = await page.context().newCDPSession(page);
  const evaluate = async (expression: string, awaitPromise: boolean): Promise<unknown> => {
    const answer = await session.send('Runtime.evaluate', { expression, awaitPromise, returnByValue: true });
    if (answer.exceptionDetails) throw new Error(`${what}: axe: ${JSON.stringify(answer.exceptionDetails)}`);
    return answer.result.value;
  };
  await evaluate(`${readFileSync(axeSource, 'utf8')};0`, false);
  const rules = "{ runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] }";
  const { violations } = (await evaluate(`axe.run(document, ${rules})`, true)) as AxeResult;
  const found = violations.map(({ id, help, nodes }) => {
    const where = nodes
      .slice(0, 3)
      .map((node) => `    ${node.html.slice(0, 200)}\n    ${node.failureSummary ?? ''}`);
    return `${id}: ${help}\n${where.join('\n')}`;
  });
  expect(found, `${what}: accessibility`).toEqual([]);
  await session.detach();
}
