/** Asks who it is: by a provider, or by a token. Whoever was sent a link sees that page once logged in. */
import type { ReactNode, SubmitEvent } from 'react';
import { useEffect, useState } from 'react';

import { HubFailure, adviceOf, headingOf } from '../api/errors';
import { session } from '../api/session';
import type { Provider } from '../api/signIn';
import { goTo, offered, signInWith, startAt } from '../api/signIn';
import { usePageTitle } from '../ui/usePageTitle';

export function LoginPage(): ReactNode {
  usePageTitle('Log in');
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const [providers, setProviders] = useState<readonly Provider[]>([]);
  const ended = session.ended();
  useEffect(() => {
    offered().then(
      (found) => setProviders(found.providers),
      (reason: unknown) => setError(reason),
    );
  }, []);

  const submit = (event: SubmitEvent<HTMLFormElement>): void => {
    event.preventDefault();
    const given = new FormData(event.currentTarget).get('token');
    const token = typeof given === 'string' ? given.trim() : '';
    if (token === '') return;
    setBusy(true);
    setError(null);
    signInWith(token)
      .catch((reason: unknown) => setError(reason))
      .finally(() => setBusy(false));
  };

  return (
    <main className="login">
      <form onSubmit={submit}>
        <img src="/ui/icon.svg" alt="" width={48} height={48} />
        <h1>Roadstead</h1>
        {ended === 'refused' && error === null && (
          <p className="notice is-warning" role="alert">
            Your session has ended, or was withdrawn. Log in again.
          </p>
        )}
        {providers.length > 0 && (
          <div className="providers">
            {providers.map((provider) => (
              <button
                key={provider.issuer}
                type="button"
                className="primary"
                onClick={() => goTo(startAt(provider))}
              >
                Log in with {provider.name}
              </button>
            ))}
          </div>
        )}
        <label htmlFor="token">Token</label>
        <input
          id="token"
          name="token"
          type="password"
          autoComplete="off"
          autoCapitalize="off"
          spellCheck={false}
          required
          aria-describedby="token-help"
          aria-invalid={error !== null}
        />
        {error !== null && (
          <p className="notice is-failing" role="alert">
            <strong>{isRefusal(error) ? 'The hub does not know this token.' : headingOf(error)}</strong>{' '}
            {isRefusal(error) ? 'Copy it whole, without spaces.' : adviceOf(error)}
          </p>
        )}
        <button type="submit" className={providers.length > 0 ? undefined : 'primary'} disabled={busy}>
          {busy ? 'Asking the hub…' : 'Log in'}
        </button>
        <div id="token-help" className="dim">
          <p>The token of your kubeconfig for this hub:</p>
          <pre>
            <code>{"kubectl config view --minify --raw \\\n  -o jsonpath='{.users[0].user.token}'"}</code>
          </pre>
          <p>
            The hub exchanges it for a session, which ends when you log out: the browser does not keep it.
          </p>
        </div>
      </form>
    </main>
  );
}

function isRefusal(error: unknown): boolean {
  return error instanceof HubFailure && error.problem === 'unauthenticated';
}
