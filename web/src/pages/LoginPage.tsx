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
  const [providers, setProviders] = useState<readonly Provider[]>([]);
  // No field is shown before it is known whether there is to be one.
  const [token, setToken] = useState<'unknown' | 'hidden' | 'emergency' | 'usual'>('unknown');
  const ended = session.ended();
  useEffect(() => {
    offered().then(
      (found) => {
        setProviders(found.providers);
        setToken(found.tokenIsForEmergencies ? 'hidden' : 'usual');
      },
      (reason: unknown) => {
        setError(reason);
        setToken('usual');
      },
    );
  }, []);

  return (
    <main className="login">
      <div className="panel">
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
        {token === 'hidden' && (
          <button type="button" className="link" onClick={() => setToken('emergency')}>
            Nobody can log in? Use a break-glass token
          </button>
        )}
        {(token === 'usual' || token === 'emergency') && (
          <TokenForm
            isPrimary={providers.length === 0}
            isEmergency={token === 'emergency'}
            error={error}
            onError={setError}
          />
        )}
      </div>
    </main>
  );
}

function TokenForm({
  isPrimary,
  isEmergency,
  error,
  onError,
}: {
  isPrimary: boolean;
  isEmergency: boolean;
  error: unknown;
  onError: (error: unknown) => void;
}): ReactNode {
  const [busy, setBusy] = useState(false);
  const submit = (event: SubmitEvent<HTMLFormElement>): void => {
    event.preventDefault();
    const given = new FormData(event.currentTarget).get('token');
    const token = typeof given === 'string' ? given.trim() : '';
    if (token === '') return;
    setBusy(true);
    onError(null);
    signInWith(token)
      .catch(onError)
      .finally(() => setBusy(false));
  };
  return (
    <form onSubmit={submit}>
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
          <strong>{headingOfRefusal(error)}</strong> {adviceOfRefusal(error)}
        </p>
      )}
      <button type="submit" className={isPrimary ? 'primary' : undefined} disabled={busy}>
        {busy ? 'Asking the hub…' : 'Log in'}
      </button>
      <div id="token-help" className="dim">
        {isEmergency ? (
          <>
            <p>
              An administrator’s token of this hub, for when the provider cannot be reached. Its use is on
              record as break-glass. Whoever has the database and the key file makes one:
            </p>
            <pre>
              <code>roadstead-hub --print-admin-kubeconfig</code>
            </pre>
          </>
        ) : (
          <>
            <p>The token of your kubeconfig for this hub:</p>
            <pre>
              <code>{"kubectl config view --minify --raw \\\n  -o jsonpath='{.users[0].user.token}'"}</code>
            </pre>
          </>
        )}
        <p>The hub exchanges it for a session, which ends when you log out: the browser does not keep it.</p>
      </div>
    </form>
  );
}

function problemOf(error: unknown): string | undefined {
  return error instanceof HubFailure ? error.problem : undefined;
}

function headingOfRefusal(error: unknown): string {
  switch (problemOf(error)) {
    case 'unauthenticated':
      return 'The hub does not know this token.';
    case 'forbidden':
      return 'This token does not log in here.';
    default:
      return headingOf(error);
  }
}

function adviceOfRefusal(error: unknown): string {
  switch (problemOf(error)) {
    case 'unauthenticated':
      return 'Copy it whole, without spaces.';
    case 'forbidden':
      return 'Log in at a provider. Only an administrator’s token of this hub is accepted here.';
    default:
      return adviceOf(error);
  }
}
