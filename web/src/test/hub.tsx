/** A hub made of answers: those that were recorded from the real one, or whatever a test wants of it. */
import type { ReactNode } from 'react';
import type { QueryClient } from '@tanstack/react-query';
import { QueryClientProvider } from '@tanstack/react-query';
import type { RenderResult } from '@testing-library/react';
import { render } from '@testing-library/react';
import { MemoryRouter } from 'react-router';
import { vi } from 'vitest';

import { Pages, newQueryClient } from '../App';
import { ToastProvider } from '../ui/Toasts';
import appliers from './recorded/appliers.json';
import clusters from './recorded/clusters.json';
import events from './recorded/events.json';
import inventory from './recorded/inventory.json';
import paymentsReconciliations from './recorded/payments-reconciliations.json';
import payments from './recorded/payments.json';
import shopReconciliations from './recorded/shop-reconciliations.json';
import shop from './recorded/shop.json';
import sources from './recorded/sources.json';
import webapp from './recorded/webapp.json';

export const recorded = {
  appliers,
  clusters,
  events,
  inventory,
  payments,
  shop,
  shopReconciliations,
  webapp,
};

type Answer = unknown;

export const KUSTOMIZE = '/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/apps/kustomizations';
const SOURCE = '/apis/source.toolkit.fluxcd.io/v1';

const RECORDED: Record<string, Answer> = {
  // By default the user may do everything.
  '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews': { status: { allowed: true } },
  '/fleet/v1/clusters': clusters,
  '/fleet/v1/appliers': appliers,
  '/fleet/v1/sources': sources,
  '/fleet/v1/events': events,
  '/fleet/v1/inventory': inventory,
  [`${KUSTOMIZE}/shop`]: shop,
  [`${KUSTOMIZE}/payments`]: payments,
  '/fleet/v1/appliers/Kustomization/apps/shop/reconciliations': shopReconciliations,
  '/fleet/v1/appliers/Kustomization/apps/payments/reconciliations': paymentsReconciliations,
  [`${SOURCE}/namespaces/apps/gitrepositories/webapp`]: webapp,
};

export interface Asked {
  method: string;
  path: string;
  query: URLSearchParams;
  headers: Headers;
  body: string;
}

/** A Kubernetes `Status`, as the hub answers what it does not do. */
export function refusal(code: number, message: string, headers: Record<string, string> = {}): Response {
  return Response.json({ kind: 'Status', status: 'Failure', message, code }, { status: code, headers });
}

/** Stands in for the hub. `special` answers by path, before what is recorded: a value, a response, or what gives one. */
export function hub(special: Record<string, Answer> = {}): { asked: Asked[] } {
  const asked: Asked[] = [];
  const answers: Record<string, Answer> = { ...RECORDED, ...special };
  vi.stubGlobal('fetch', async (request: Request) => {
    const url = new URL(request.url);
    const call: Asked = {
      method: request.method,
      path: url.pathname,
      query: url.searchParams,
      headers: request.headers,
      body: await request.clone().text(),
    };
    asked.push(call);
    const given = answers[`${request.method} ${url.pathname}`] ?? answers[url.pathname];
    const answer: Answer =
      typeof given === 'function' ? await (given as (call: Asked) => Answer)(call) : given;
    if (answer === undefined) return refusal(404, `${url.pathname} is not recorded`);
    return answer instanceof Response ? answer.clone() : Response.json(answer);
  });
  return { asked };
}

/** Draws the page of an address. */
export function show(
  address: string,
  around = (pages: ReactNode): ReactNode => pages,
): RenderResult & { client: QueryClient } {
  const client = newQueryClient();
  const drawn = render(
    <QueryClientProvider client={client}>
      <ToastProvider>
        <MemoryRouter initialEntries={[address]}>{around(<Pages />)}</MemoryRouter>
      </ToastProvider>
    </QueryClientProvider>,
  );
  return { ...drawn, client };
}
