/** The stream of changes: read, cut, taken up again; and what its changes do to what the pages know. */
import { afterEach, describe, expect, test, vi } from 'vitest';

import { HubFailure } from '../api/errors';
import { newQueryClient } from '../App';
import type { ApplierPage, ClusterPage } from '../api/queries';
import { keys } from '../api/queries';
import { Live, merge } from './live';
import { serverEvents } from './sse';
import type { Change, StreamState } from './stream';
import { ChangeStream } from './stream';
import { Throttle } from './throttle';
import { hub, recorded } from '../test/hub';

function stream(...pieces: string[]): ReadableStream<Uint8Array> {
  const bytes = new TextEncoder();
  return new ReadableStream({
    start(controller) {
      for (const piece of pieces) controller.enqueue(bytes.encode(piece));
      controller.close();
    },
  });
}

/** A body to which nothing more comes, until the request is given up. */
function silence(signal: AbortSignal): ReadableStream<Uint8Array> {
  return new ReadableStream({
    start: (controller) => signal.addEventListener('abort', () => controller.error(signal.reason)),
  });
}

const CHANGE: Change = {
  type: 'MODIFIED',
  kind: 'Kustomization',
  namespace: 'apps',
  name: 'shop',
  cluster: 'edge',
  resourceVersion: '7',
  suspended: true,
};

function event(id: string, change: Change = CHANGE): string {
  return `event: change\nid: ${id}\ndata: ${JSON.stringify(change)}\n\n`;
}

describe('server-sent events', () => {
  test('are read however they are cut into pieces', async () => {
    const text =
      ': alive\r\n\r\nevent: change\r\nid: 7\r\ndata: {"a":\r\ndata: "ü"}\r\n\r\ndata:x\n\nevent: half';
    for (const size of [1, 2, 3, 7, 1000]) {
      const bytes = new TextEncoder().encode(text);
      const pieces = Array.from({ length: Math.ceil(bytes.length / size) }, (_, index) =>
        bytes.slice(index * size, (index + 1) * size),
      );
      const body = new ReadableStream<Uint8Array>({
        start(controller) {
          for (const piece of pieces) controller.enqueue(piece);
          controller.close();
        },
      });
      const found = [];
      for await (const each of serverEvents(body)) found.push(each);
      expect(found, `${size}`).toEqual([
        { type: 'comment', id: null, data: 'alive' },
        { type: 'change', id: '7', data: '{"a":\n"ü"}' },
        { type: 'message', id: null, data: 'x' },
      ]);
    }
  });
});

describe('the stream', () => {
  afterEach(() => vi.useRealTimers());

  function follow(answers: ((request: Request) => Promise<Response>)[]): {
    states: StreamState[];
    opens: boolean[];
    changes: Change[];
    requests: Request[];
    stream: ChangeStream;
  } {
    const told = { states: [], opens: [], changes: [], requests: [] } as {
      states: StreamState[];
      opens: boolean[];
      changes: Change[];
      requests: Request[];
    };
    const made = new ChangeStream({
      onChange: (change) => told.changes.push(change),
      onOpen: (resumed) => told.opens.push(resumed),
      onState: (state) => told.states.push(state),
      open: (request) => {
        told.requests.push(request);
        return (answers.shift() ?? (() => new Promise<Response>(() => undefined)))(request);
      },
    });
    made.start();
    return { ...told, stream: made };
  }

  test('says since when it is cut, and goes on from where it was', async () => {
    vi.useFakeTimers();
    const seen = follow([
      () => Promise.resolve(new Response(stream(event('7')))),
      () => Promise.reject(new HubFailure('unreachable', 'The hub cannot be reached.')),
      () => Promise.resolve(new Response(stream(event('8')))),
    ]);
    await vi.advanceTimersByTimeAsync(60_000);
    seen.stream.stop();
    expect(seen.changes.length).toBe(2);
    expect(seen.requests.map((request) => request.headers.get('last-event-id'))).toEqual([
      null,
      '7',
      '7',
      '8',
    ]);
    expect(seen.opens).toEqual([false, true]);
    const cuts = seen.states.filter((state) => state.phase === 'cut');
    // Two failures of one cut: it is cut since the first.
    expect(cuts[0]?.since).toBe(cuts[1]?.since);
    expect(cuts[1]?.why).toBe('The hub cannot be reached.');
  });

  test('that no longer knows where it was starts over', async () => {
    vi.useFakeTimers();
    const seen = follow([
      () => Promise.resolve(new Response(stream(event('7'), 'event: gone\ndata: too old\n\n'))),
      () => Promise.resolve(new Response(stream(event('9')))),
    ]);
    await vi.advanceTimersByTimeAsync(3_000);
    seen.stream.stop();
    expect(seen.requests[1]?.headers.get('last-event-id')).toBeNull();
    expect(seen.opens.slice(0, 2)).toEqual([false, false]);
  });

  test('that is silent is taken for cut', async () => {
    vi.useFakeTimers();
    const seen = follow([(request) => Promise.resolve(new Response(silence(request.signal)))]);
    await vi.advanceTimersByTimeAsync(39_000);
    expect(seen.states.at(-1)?.phase).toBe('live');
    await vi.advanceTimersByTimeAsync(2_000);
    seen.stream.stop();
    expect(seen.states.at(-1)?.phase).toBe('cut');
  });

  test('waits as long as the hub says', async () => {
    vi.useFakeTimers();
    const seen = follow([() => Promise.reject(new HubFailure('tooMany', 'too many', 429, 20))]);
    await vi.advanceTimersByTimeAsync(19_000);
    expect(seen.requests.length).toBe(1);
    await vi.advanceTimersByTimeAsync(2_000);
    seen.stream.stop();
    expect(seen.requests.length).toBe(2);
  });
});

describe('a change', () => {
  test('of a Kustomization asks for its cluster alone, and once for many', async () => {
    const { asked } = hub({
      '/fleet/v1/clusters': { items: [{ ...recorded.clusters.items[0], objects: 99 }] },
    });
    const client = newQueryClient();
    client.setQueryData(keys.clusters(), recorded.clusters);
    const observer = client.getQueryCache().find({ queryKey: keys.clusters(), exact: true });
    vi.spyOn(observer ?? expect.fail('a query'), 'isActive').mockReturnValue(true);
    const live = new Live(client);
    for (let index = 0; index < 50; index += 1) live.apply(CHANGE);
    await vi.waitFor(() => {
      const page = client.getQueryData<ClusterPage>(keys.clusters());
      expect(page?.items[0]?.objects).toBe(99);
    });
    const questions = asked.filter((call) => call.path === '/fleet/v1/clusters');
    expect(questions.map((call) => call.query.get('names'))).toEqual(['edge']);
    live.stop();
  });

  test('of an applier of any kind is written into the lists that hold it, and into nothing of its name', async () => {
    hub();
    const client = newQueryClient();
    const [first] = recorded.appliers.items;
    const shop = { ...first, namespace: 'apps', name: 'shop' };
    const items = [shop, { ...shop, kind: 'Rollout' }];
    const key = [...keys.appliers(), {}];
    client.setQueryData(key, { pages: [{ items }], pageParams: [''] });
    const rollout = { ...CHANGE, kind: 'Rollout' };
    client.setQueryData(keys.reconciliations(CHANGE), { items: [] });
    client.setQueryData(keys.reconciliations(rollout), { items: [] });
    const live = new Live(client);
    live.apply(rollout);
    const suspended = client
      .getQueryData<{ pages: ApplierPage[] }>(key)
      ?.pages[0]?.items.map((item) => item.suspended);
    expect(suspended).toEqual([false, true]);
    const outdated = (change: Change): boolean | undefined =>
      client.getQueryState(keys.reconciliations(change))?.isInvalidated;
    await vi.waitFor(() => expect(outdated(rollout)).toBe(true));
    expect(outdated(CHANGE)).toBe(false);
    live.stop();
  });

  test('brings clusters in, changes them and takes them away', () => {
    const page = recorded.clusters as ClusterPage;
    const [edge] = page.items;
    if (!edge) return expect.fail('a cluster');
    const merged = merge(
      page,
      ['edge', 'edge-2', 'new'],
      [
        { ...edge, objects: 1 },
        { ...edge, name: 'new' },
      ],
    );
    expect(merged.items.map((item) => item.name)).toEqual(['edge', 'edge-3', 'new']);
    expect(merged.items[0]?.objects).toBe(1);
  });
});

test('a throttle acts at once, and then once in a while', async () => {
  vi.useFakeTimers();
  const act = vi.fn();
  const throttle = new Throttle();
  for (let index = 0; index < 100; index += 1) {
    throttle.run('key', 1_000, act);
    await vi.advanceTimersByTimeAsync(30);
  }
  expect(act.mock.calls.length).toBeLessThanOrEqual(4);
  throttle.stop();
});
