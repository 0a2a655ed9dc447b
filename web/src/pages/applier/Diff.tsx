/** What differs between the build of an attempt and the build before it, object by object and field by field. */
import { useQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { useState } from 'react';

import type { ObjectId } from '../../api/kinds';
import * as queries from '../../api/queries';
import type { BuildDiff } from '../../api/queries';
import { Asked } from '../../ui/States';
import { Name, Revision } from '../../ui/Text';

/** The dashboard has the colours of what was done to objects: what a build has more, else, or less is shown in the same. */
const ACTION: Record<string, string> = { added: 'created', changed: 'configured', removed: 'deleted' };

export function Diff({ id, attempt }: { id: ObjectId; attempt: number }): ReactNode {
  const [open, setOpen] = useState(false);
  if (open) return <Opened id={id} attempt={attempt} />;
  return (
    <p>
      <button type="button" onClick={() => setOpen(true)}>
        Compare with the build before
      </button>
    </p>
  );
}

function Opened({ id, attempt }: { id: ObjectId; attempt: number }): ReactNode {
  const answer = useQuery(queries.diff(id, attempt));
  return (
    <Asked answer={answer} what="the comparison">
      {(diff) => <Compared diff={diff} />}
    </Asked>
  );
}

function Compared({ diff }: { diff: BuildDiff }): ReactNode {
  const more = diff.objectsLeftOut + diff.fieldsLeftOut;
  return (
    <section className="diff" aria-label="What differs">
      <p className="dim">
        From #{diff.from.attempt} <Revision>{diff.from.revision ?? ''}</Revision> to #{diff.to.attempt}{' '}
        <Revision>{diff.to.revision ?? ''}</Revision>, before variables are substituted
      </p>
      {diff.objects.length === 0 && <p>No object differs.</p>}
      {diff.objects.map(({ kind, group, namespace, name, change, fields }) => (
        <div key={`${group}/${kind}/${namespace}/${name}`}>
          <p>
            <span className={`action is-${ACTION[change] ?? change}`}>{change}</span>{' '}
            <Name>{[kind, namespace, name].filter(Boolean).join(' / ')}</Name>
          </p>
          <dl className="diff-fields">
            {fields.map(({ path, from, to }) => (
              <div key={path}>
                <dt>{path}</dt>
                {from != null && <dd className="is-from">{from}</dd>}
                {to != null && <dd className="is-to">{to}</dd>}
              </div>
            ))}
          </dl>
        </div>
      ))}
      {more > 0 && <p className="dim">and {more.toLocaleString('en')} more objects and fields</p>}
    </section>
  );
}
