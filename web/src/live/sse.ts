/**
 * Server-sent events out of a response's body. The browser's own EventSource cannot say who asks (it sends no headers), and a
 * token has no place in an address.
 */
export interface ServerEvent {
  /** `comment` is what a server sends to show that it lives. */
  type: string;
  id: string | null;
  data: string;
}

/** A line that is longer than this is none of ours. */
const MAX_LINE = 4 * 1024 * 1024;

export async function* serverEvents(body: ReadableStream<Uint8Array>): AsyncGenerator<ServerEvent> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  let event = fresh();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += decoder.decode(value, { stream: true });
      // A CR at the end may be half of a CRLF.
      const held = rest.endsWith('\r') ? rest.slice(0, -1) : rest;
      const lines = held.split(/\r\n|\n|\r/);
      rest = (lines.pop() ?? '') + rest.slice(held.length);
      if (rest.length > MAX_LINE) throw new Error('a line of the stream has no end');
      for (const line of lines) {
        if (line === '') {
          if (event.lines.length > 0) yield { type: event.type, id: event.id, data: event.lines.join('\n') };
          event = fresh();
        } else if (line.startsWith(':')) {
          yield { type: 'comment', id: null, data: line.slice(1).trimStart() };
        } else {
          take(event, line);
        }
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

interface Pending {
  type: string;
  id: string | null;
  lines: string[];
}

function fresh(): Pending {
  return { type: 'message', id: null, lines: [] };
}

function take(event: Pending, line: string): void {
  const colon = line.indexOf(':');
  const field = colon < 0 ? line : line.slice(0, colon);
  const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
  if (field === 'event') event.type = value;
  else if (field === 'id') event.id = value;
  else if (field === 'data') event.lines.push(value);
}
