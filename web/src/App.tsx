/** The whole: who the user is, what is known, what is live, and which page the address names. */
import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { Suspense, lazy, useEffect, useState, useSyncExternalStore } from 'react';
import { BrowserRouter, Navigate, Route, Routes, useLocation } from 'react-router';

import { forget, keep, recall } from './api/cache';
import { HubFailure } from './api/errors';
import { session } from './api/session';
import { learnWhoIsIn } from './api/signIn';
import { Live } from './live/live';
import { LiveContext } from './live/useLive';
import { FleetPage } from './pages/fleet/FleetPage';
import { LoginPage } from './pages/LoginPage';
import { Shell } from './ui/Shell';
import { Failure, Loading } from './ui/States';
import { ToastProvider } from './ui/Toasts';

const ClusterPage = lazy(() => import('./pages/ClusterPage'));
const AppliersPage = lazy(() => import('./pages/AppliersPage'));
const ApplierPage = lazy(() => import('./pages/applier/ApplierPage'));
const SourcesPage = lazy(() => import('./pages/SourcesPage'));
const SourcePage = lazy(() => import('./pages/SourcePage'));
const EventsPage = lazy(() => import('./pages/EventsPage'));
const AlertsPage = lazy(() => import('./pages/AlertsPage'));
const AuditPage = lazy(() => import('./pages/AuditPage'));
const SearchPage = lazy(() => import('./pages/SearchPage'));
const NotFoundPage = lazy(() => import('./pages/NotFoundPage'));

const RETRIES = 2;

export function newQueryClient(): QueryClient {
  return new QueryClient({
    defaultOptions: {
      queries: {
        // The stream says what changed; without it, what is shown is asked for again when the window is looked at.
        staleTime: 60_000,
        gcTime: 15 * 60_000,
        retry: (failures, error) =>
          failures < RETRIES && error instanceof HubFailure && error.passing && error.problem !== 'slow',
        retryDelay: (failures, error) =>
          error instanceof HubFailure && error.retryAfter !== undefined
            ? error.retryAfter * 1000
            : Math.min(500 * 2 ** failures, 5_000),
      },
    },
  });
}

export function App(): ReactNode {
  const user = useSyncExternalStore(session.subscribe, session.user);
  const [unknown, setUnknown] = useState<unknown>(null);
  useEffect(() => {
    // Somebody else may have signed in meanwhile, or nobody be any more.
    learnWhoIsIn().catch(setUnknown);
  }, []);
  return (
    <BrowserRouter basename="/ui">
      {user === undefined ? (
        <Arriving failure={unknown} />
      ) : user === null ? (
        <LoginPage />
      ) : (
        <LoggedIn key={user} />
      )}
    </BrowserRouter>
  );
}

/** Until the hub has said who it is. */
function Arriving({ failure }: { failure: unknown }): ReactNode {
  if (failure === null) return <Loading page what="the hub" />;
  return (
    <main>
      <Failure page error={failure} retry={() => globalThis.location.reload()} />
    </main>
  );
}

function begin(): { client: QueryClient; live: Live } {
  const client = newQueryClient();
  recall(client);
  return { client, live: new Live(client) };
}

function LoggedIn(): ReactNode {
  const [{ client, live }] = useState(begin);
  useEffect(() => {
    live.start();
    const stopKeeping = keep(client);
    return () => {
      live.stop();
      stopKeeping();
      // The session has ended, or another one begins: nothing of it stays.
      forget();
    };
  }, [client, live]);
  return (
    <QueryClientProvider client={client}>
      <LiveContext value={live}>
        <ToastProvider>
          <Shell>
            <Pages />
          </Shell>
        </ToastProvider>
      </LiveContext>
    </QueryClientProvider>
  );
}

export function Pages(): ReactNode {
  return (
    <Suspense fallback={<Loading page what="the page" />}>
      <Routes>
        <Route path="/" element={<FleetPage />} />
        <Route path="/login" element={<Navigate to="/" replace />} />
        <Route path="/clusters/:name" element={<ClusterPage />} />
        <Route path="/appliers" element={<AppliersPage />} />
        <Route path="/appliers/:kind/:namespace/:name/:tab?" element={<ApplierPage />} />
        <Route path="/kustomizations/*" element={<FromKustomizations />} />
        <Route path="/sources" element={<SourcesPage />} />
        <Route path="/sources/:kind/:namespace/:name" element={<SourcePage />} />
        <Route path="/events" element={<EventsPage />} />
        <Route path="/alerts" element={<AlertsPage />} />
        <Route path="/audit" element={<AuditPage />} />
        <Route path="/search" element={<SearchPage />} />
        <Route path="*" element={<NotFoundPage />} />
      </Routes>
    </Suspense>
  );
}

/** Addresses from before there were other appliers than Kustomizations lead to where they are now. */
function FromKustomizations(): ReactNode {
  const { pathname, search, hash } = useLocation();
  const rest = pathname.replace(/^\/kustomizations\/?/, '');
  if (rest !== '')
    return <Navigate to={{ pathname: `/appliers/Kustomization/${rest}`, search, hash }} replace />;
  const query = new URLSearchParams(search);
  query.set('kind', 'Kustomization');
  return <Navigate to={{ pathname: '/appliers', search: query.toString(), hash }} replace />;
}
