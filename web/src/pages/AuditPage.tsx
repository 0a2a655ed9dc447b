/** Who changed what, when and how: the audit log, the newest first. */
import { useInfiniteQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { useCallback, useMemo } from 'react';
import { Link } from 'react-router';

import { KINDS } from '../api/kinds';
import type { AuditFilter, AuditItem } from '../api/queries';
import { audit } from '../api/queries';
import { useFilters } from '../lib/useFilters';
import { Chips, Choice, SearchField } from '../ui/Fields';
import { pageOf } from '../ui/links';
import { Asked, Empty } from '../ui/States';
import { Status } from '../ui/Status';
import { Message, Name } from '../ui/Text';
import { Age } from '../ui/Time';
import { usePageTitle } from '../ui/usePageTitle';

const NAMES = ['user', 'verb', 'kind', 'namespace', 'name', 'outcome', 'request', 'administrator'] as const;
const NONE = Object.fromEntries(NAMES.map((name) => [name, '']));
/** What else is on record: other objects, credentials, and what has a path and holds no object. */
const OTHERS = [
  'Alert',
  'Provider',
  'Receiver',
  'Silence',
  'ArtifactGenerator',
  'ManagementCluster',
  'Namespace',
  'ResourceQuota',
  'ReferenceGrant',
  'ConfigMap',
  'Secret',
  'ServiceAccount',
  'Role',
  'RoleBinding',
  'ClusterRole',
  'ClusterRoleBinding',
  'AccessToken',
  'AccountKey',
  'ClientCertificate',
  'Credential',
  'Session',
  'Path',
];
const VERBS = [
  'create',
  'update',
  'patch',
  'delete',
  'get',
  'list',
  'watch',
  'reconcile',
  'login',
  'enrol',
  'use',
];

export default function AuditPage(): ReactNode {
  usePageTitle('Audit');
  const [filter, change] = useFilters(NAMES);
  const setUser = useCallback((user: string) => change({ user }), [change]);
  const setVerb = useCallback((verb: string) => change({ verb }), [change]);
  const setNamespace = useCallback((namespace: string) => change({ namespace }), [change]);
  const setName = useCallback((name: string) => change({ name }), [change]);
  const setRequest = useCallback((request: string) => change({ request }), [change]);
  return (
    <div className="page">
      <header className="page-head">
        <h1>Audit</h1>
        <p className="dim">Who changed what, read Secrets, or was refused</p>
      </header>
      <div className="filters">
        <Chips
          label="Outcome"
          value={filter.outcome}
          onChange={(outcome) => change({ outcome })}
          chips={[
            { value: 'ok', title: 'Done', state: 'ok' },
            { value: 'refused', title: 'Refused', state: 'failing' },
          ]}
        />
        <Chips
          label="Credential"
          value={filter.administrator}
          onChange={(administrator) => change({ administrator })}
          chips={[{ value: 'true', title: 'Administrators' }]}
        />
        <SearchField label="User" value={filter.user} onChange={setUser} />
        <SearchField label="Verb" value={filter.verb} onChange={setVerb} suggestions={VERBS} />
        <Choice
          label="Kind"
          value={filter.kind}
          onChange={(kind) => change({ kind })}
          options={[
            ['', 'all'],
            ...[...KINDS.map(({ kind }) => kind), ...OTHERS].map((kind) => [kind, kind] as const),
          ]}
        />
        <SearchField label="Namespace" value={filter.namespace} onChange={setNamespace} />
        <SearchField label="Name" value={filter.name} onChange={setName} />
        <SearchField label="Request" value={filter.request} onChange={setRequest} />
      </div>
      <Entries filter={filter} clear={() => change(NONE)} />
    </div>
  );
}

function Entries({ filter, clear }: { filter: AuditFilter; clear: () => void }): ReactNode {
  const answer = useInfiniteQuery(audit(filter));
  const { fetchNextPage, hasNextPage, isFetchingNextPage } = answer;
  const rows = useMemo(() => answer.data?.pages.flatMap((page) => page.items) ?? [], [answer.data]);
  return (
    <Asked answer={answer} what="the audit log">
      {() =>
        rows.length === 0 ? (
          <Empty title="No entry is like that">
            <p className="dim">Users, verbs, kinds, namespaces and names are whole.</p>
            <button type="button" onClick={clear}>
              Show all
            </button>
          </Empty>
        ) : (
          <>
            <ul className="event-list" aria-label="Entries">
              {rows.map((entry) => (
                <Entry key={entry.id} entry={entry} />
              ))}
            </ul>
            {hasNextPage && (
              <p>
                <button type="button" disabled={isFetchingNextPage} onClick={() => void fetchNextPage()}>
                  Show older ones
                </button>
              </p>
            )}
          </>
        )
      }
    </Asked>
  );
}

function Entry({ entry }: { entry: AuditItem }): ReactNode {
  const { user, impersonator, impersonated, administrator, verb, times, detail, signed } = entry;
  const groups = impersonated?.groups ?? [];
  const changes = entry.changes ?? [];
  return (
    <li>
      <div className="condition-head">
        <span>
          <Status state={entry.outcome === 'ok' ? 'ok' : 'failing'} word={verb} /> <Target entry={entry} />
        </span>
        <span className="dim">
          <Age at={entry.at} suffix=" ago" />
          {times > 1 && <> · {times.toLocaleString('en')} times</>}
        </span>
      </div>
      <p className="dim">
        by <Name>{user || 'several'}</Name>
        {groups.length > 0 && (
          <>
            {' '}
            in <Name>{groups.join(', ')}</Name>
            {impersonated?.leftOut && ` and ${impersonated.leftOut.toLocaleString('en')} more`}
          </>
        )}
        {impersonator && (
          <>
            {' '}
            (impersonated by <Name>{impersonator}</Name>)
          </>
        )}
        {administrator && ' · with an administrator’s credential'}
        {entry.address && (
          <>
            {' '}
            · from <Name>{entry.address}</Name>
          </>
        )}
        {entry.request && (
          <>
            {' '}
            · <Link to={`/audit?request=${encodeURIComponent(entry.request)}`}>this request</Link>
          </>
        )}
      </p>
      {!signed && entry.batch !== 0 && (
        <p className="notice is-failing">Somebody without the hub’s key has written or changed this entry.</p>
      )}
      {detail && <Message text={detail} />}
      {changes.length > 0 && (
        <details>
          <summary>{changes.length === 1 ? '1 field' : `${changes.length} fields`}</summary>
          <Changes changes={changes} />
        </details>
      )}
    </li>
  );
}

/** What it was about. */
function Target({ entry: { kind, namespace, name } }: { entry: AuditItem }): ReactNode {
  const [whole = '', subresource] = kind.split('/', 2);
  const to = name === '' ? null : pageOf({ kind: whole, namespace, name });
  const text = <Name>{[namespace, name].filter(Boolean).join('/')}</Name>;
  return (
    <>
      <span className="dim">{subresource ? `${whole} (${subresource})` : whole} </span>
      {to === null ? text : <Link to={to}>{text}</Link>}
    </>
  );
}

type Change = NonNullable<AuditItem['changes']>[number];

function shown(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value);
}

function Changes({ changes }: { changes: readonly Change[] }): ReactNode {
  return (
    <dl className="diff-fields">
      {changes.map(({ path, from, to, note }, index) => (
        <div key={path ?? index}>
          <dt>{path ?? note}</dt>
          {from !== undefined && <dd className="is-from">{shown(from)}</dd>}
          {to !== undefined && <dd className="is-to">{shown(to)}</dd>}
        </div>
      ))}
    </dl>
  );
}
