import '@testing-library/jest-dom/vitest';
import { cleanup, configure } from '@testing-library/react';
import { afterEach, beforeEach, vi } from 'vitest';

import { session } from '../api/session';

// jsdom lays nothing out: a list is given a height, and so are its rows, so that it draws the first of them.
for (const [prototype, name, size] of [
  [Element.prototype, 'clientHeight', 600],
  [Element.prototype, 'clientWidth', 1000],
  [HTMLElement.prototype, 'offsetHeight', 44],
] as const) {
  Object.defineProperty(prototype, name, { configurable: true, get: () => size });
}
// Parts are awaited, not timed: a machine that does other things besides may be slow.
configure({ asyncUtilTimeout: 10_000 });
const nothing = (): void => undefined;
vi.stubGlobal(
  'ResizeObserver',
  class {
    observe = nothing;
    unobserve = nothing;
    disconnect = nothing;
  },
);
// jsdom has no dialogs.
HTMLDialogElement.prototype.showModal = nothing;
HTMLDialogElement.prototype.close = nothing;
Element.prototype.scrollTo = () => undefined;
globalThis.scrollTo = () => undefined;

beforeEach(() => {
  sessionStorage.clear();
  session.begin('admin');
});
afterEach(() => {
  cleanup();
  vi.useRealTimers();
});
