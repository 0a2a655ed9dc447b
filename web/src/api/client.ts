/** Requests to the hub: the fleet views by the generated client, the resource API by paths. */
import createClient from 'openapi-fetch';

import { noteHubTime } from '../lib/clock';
import { HubFailure, failureOf, failureOfRequest } from './errors';
import type { paths } from './fleet';
import { session } from './session';

/** So long an answer may take. The hub itself lets a request wait for 15 s. */
const PATIENCE = 30_000;

/** The hub takes the session's cookie of its own pages alone, which say so by this: no other page can without its leave. */
const BY_DASHBOARD = 'x-roadstead-dashboard';

/** Sends the session's cookie, bounds the time, notes the hub's clock, and turns everything but success into a {@link HubFailure}. */
export async function hubFetch(request: Request, patience = PATIENCE): Promise<Response> {
  const user = session.user();
  const headers = new Headers(request.headers);
  headers.set(BY_DASHBOARD, '1');
  const signal =
    patience === Infinity ? request.signal : AbortSignal.any([request.signal, AbortSignal.timeout(patience)]);
  let response: Response;
  try {
    response = await fetch(
      new Request(request, { headers, signal, credentials: 'same-origin', cache: 'no-store' }),
    );
  } catch (error) {
    throw failureOfRequest(error);
  }
  noteHubTime(response.headers.get('date'));
  if (response.ok) return response;
  if (response.status === 401) session.end('refused', user);
  throw await failureOf(response);
}

/** What questions wait for: the stream of changes, so that nothing is missed between an answer and the first change. */
export const gate = { open: (): Promise<void> => Promise.resolve() };

async function ask(request: Request): Promise<Response> {
  if (request.method === 'GET') await gate.open();
  return hubFetch(request);
}

export const fleet = createClient<paths>({ baseUrl: globalThis.location.origin, fetch: ask });

/** What the generated client found. It throws before it would give an error. */
export async function found<T>(answer: Promise<{ data?: T }>): Promise<T> {
  let data: T | undefined;
  try {
    ({ data } = await answer);
  } catch (error) {
    if (error instanceof SyntaxError) throw notReadable();
    throw failureOfRequest(error);
  }
  if (data === undefined) throw notReadable();
  return data;
}

function notReadable(): HubFailure {
  return new HubFailure('broken', 'The hub’s answer is not readable: is a proxy in between?');
}

async function json<T>(request: Request, send = ask): Promise<T> {
  const response = await send(request);
  try {
    return (await response.json()) as T;
  } catch (error) {
    throw error instanceof SyntaxError ? notReadable() : failureOfRequest(error);
  }
}

function address(path: string): string {
  return new URL(path, globalThis.location.origin).href;
}

export function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return json<T>(
    new Request(address(path), { headers: { accept: 'application/json' }, signal: signal ?? null }),
  );
}

function posted(path: string, body: unknown): Request {
  return new Request(address(path), {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
}

export function post<T>(path: string, body: unknown): Promise<T> {
  return json<T>(posted(path, body));
}

/** The same beside the stream of changes, which there is in a session only. */
export function postApart<T>(path: string, body: unknown): Promise<T> {
  return json<T>(posted(path, body), hubFetch);
}

export function getApart<T>(path: string): Promise<T> {
  return json<T>(new Request(address(path), { headers: { accept: 'application/json' } }), hubFetch);
}

/** Deletes an object; what the hub answers is of no use. */
export async function remove(path: string): Promise<void> {
  await ask(new Request(address(path), { method: 'DELETE' }));
}

export function mergePatch<T>(path: string, body: unknown): Promise<T> {
  return json<T>(
    new Request(address(`${path}?fieldManager=roadstead-dashboard`), {
      method: 'PATCH',
      headers: { 'content-type': 'application/merge-patch+json' },
      body: JSON.stringify(body),
    }),
  );
}
