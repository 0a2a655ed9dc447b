/** What is around every page: where one can go, whether what is shown is live, and how to leave. */
import type { ReactNode } from 'react';
import { useEffect, useRef, useState } from 'react';
import { NavLink, useLocation, useNavigate } from 'react-router';

import { adviceOf } from '../api/errors';
import { useMayReadAudit, useMaySeeClusters } from '../api/may';
import { signOut } from '../api/signIn';
import { clockOffset } from '../lib/clock';
import { absolute, span } from '../lib/time';
import { useLive } from '../live/useLive';
import type { IconName } from './icons';
import { Icon } from './icons';
import { Shortcuts, useShortcuts } from './Shortcuts';
import type { Theme } from './theme';
import { THEMES, setTheme, theme } from './theme';
import { useTicking } from './Time';
import { useToast } from './Toasts';

const PAGES: readonly [to: string, title: string][] = [
  ['/', 'Fleet'],
  ['/appliers', 'Appliers'],
  ['/sources', 'Sources'],
  ['/events', 'Events'],
  ['/alerts', 'Alerts'],
  ['/search', 'Search'],
  ['/audit', 'Audit'],
];

export function Shell({ children }: { children: ReactNode }): ReactNode {
  const main = useRef<HTMLElement>(null);
  const { pathname } = useLocation();
  const [help, setHelp] = useState(false);
  const navigate = useNavigate();
  useShortcuts({ go: (to) => void navigate(to), help: () => setHelp(true) });
  const say = useToast();
  const leave = (): void => {
    // Where the hub does not know of it, the session goes on, and it must not look as if it did not.
    signOut().catch((error: unknown) => say(`You are not logged out: ${adviceOf(error)}`, false));
  };
  const first = useRef(true);
  const page = pathname.split('/').slice(0, 4).join('/');
  useEffect(() => {
    // A new page begins at its top, and screen readers are told of it. The first one is where the browser puts it.
    if (!first.current) {
      main.current?.focus({ preventScroll: true });
      globalThis.scrollTo(0, 0);
    }
    first.current = false;
  }, [page]);
  return (
    <>
      <a className="skip" href="#main">
        To the content
      </a>
      <header className="top">
        <NavLink to="/" className="brand" aria-label="Roadstead: the fleet">
          <Mark />
          <span>Roadstead</span>
        </NavLink>
        <PageLinks />
        <div className="tools">
          <Liveness />
          <ThemeButton />
          <button type="button" className="iconic" onClick={leave} title="Log out" aria-label="Log out">
            <Icon name="leave" />
          </button>
        </div>
      </header>
      <CutNotice />
      <main id="main" ref={main} tabIndex={-1}>
        {children}
      </main>
      <Shortcuts open={help} onClose={() => setHelp(false)} />
    </>
  );
}

/** The pages; of two the user may see nothing, and then they are not there. */
export function PageLinks(): ReactNode {
  const audit = useMayReadAudit();
  const clusters = useMaySeeClusters();
  const isThere = (to: string): boolean => (to !== '/audit' || audit) && (to !== '/' || clusters);
  return (
    <nav aria-label="Pages">
      <ul>
        {PAGES.filter(([to]) => isThere(to)).map(([to, title]) => (
          <li key={to}>
            <NavLink to={to} end={to === '/'}>
              {title}
            </NavLink>
          </li>
        ))}
      </ul>
    </nav>
  );
}

function Mark(): ReactNode {
  return (
    <svg className="mark" viewBox="0 0 32 32" aria-hidden="true">
      <circle cx="16" cy="8" r="2.6" />
      <path d="M16 10.6V25M11 14.5h10M6.5 18c.6 4.4 4.6 7 9.5 7s8.9-2.6 9.5-7" />
    </svg>
  );
}

/** Whether what is shown follows the fleet. */
function Liveness(): ReactNode {
  const { state } = useLive();
  const words = { connecting: 'Connecting', live: 'Live', cut: 'Not live' }[state.phase];
  return (
    <span className={`liveness is-${state.phase}`} role="status" title={livenessTitle(state.phase)}>
      <span className="dot" aria-hidden="true" />
      {words}
    </span>
  );
}

function livenessTitle(phase: 'connecting' | 'live' | 'cut'): string {
  const off = Math.abs(clockOffset());
  const clock = off > 0 ? ` This device's clock is off by ${span(off)}; ages are by the hub's clock.` : '';
  const what = {
    connecting: 'The stream of changes is being opened.',
    live: 'Changes are shown as they happen.',
    cut: 'Changes are not shown at the moment.',
  }[phase];
  return what + clock;
}

/** Says plainly when the stream is cut: since when nothing new is shown, why, and what happens next. */
function CutNotice(): ReactNode {
  const { state, retryNow } = useLive();
  const cut = state.phase === 'cut' ? state : null;
  const next = useTicking((now) => {
    const left = Math.ceil(((cut?.retryAt ?? 0) - now) / 1000);
    return left > 0 ? `Trying again in ${left} s.` : 'Trying again…';
  });
  // Who may not see the fleet is told so by the page.
  if (!cut || cut.forbidden) return null;
  return (
    <section className="notice is-warning cut" aria-label="Connection">
      <p role="alert">
        <strong>Not live since {absolute(cut.since)}.</strong> What you see may be older than that. {cut.why}
      </p>
      <p>
        {next}{' '}
        <button type="button" onClick={retryNow}>
          Try now
        </button>
      </p>
    </section>
  );
}

const THEME_ICONS: Record<Theme, IconName> = { system: 'screen', light: 'sun', dark: 'moon' };

function ThemeButton(): ReactNode {
  const [held, setHeld] = useState(theme);
  const next = THEMES[(THEMES.indexOf(held) + 1) % THEMES.length] ?? 'system';
  const label = `Colours: ${held === 'system' ? 'as the system' : held}. Change to ${next === 'system' ? 'the system’s' : next}`;
  return (
    <button
      type="button"
      className="iconic"
      aria-label={label}
      title={label}
      onClick={() => {
        setTheme(next);
        setHeld(next);
      }}
    >
      <Icon name={THEME_ICONS[held]} />
    </button>
  );
}
