/** An object as YAML, as kubectl would show it, without what nobody reads. Loaded when it is first wanted. */
import type { ReactNode } from 'react';
import { useMemo, useState } from 'react';
import { stringify } from 'yaml';

import type { KubeObject } from '../api/kinds';

export function yamlOf(object: KubeObject): string {
  const { managedFields: _managed, ...metadata } = object.metadata;
  const text = {
    apiVersion: object.apiVersion,
    kind: object.kind,
    metadata,
    spec: object.spec,
    status: object.status,
  };
  return stringify(text, { lineWidth: 0, aliasDuplicateObjects: false });
}

export default function Yaml({ object }: { object: KubeObject }): ReactNode {
  const text = useMemo(() => yamlOf(object), [object]);
  const [copied, setCopied] = useState<'' | 'Copied' | 'The browser does not allow it'>('');
  const copy = (): void => {
    navigator.clipboard.writeText(text).then(
      () => setCopied('Copied'),
      () => setCopied('The browser does not allow it'),
    );
  };
  return (
    <section aria-label="YAML" className="yaml">
      <p>
        <button type="button" onClick={copy}>
          Copy
        </button>{' '}
        <span role="status">{copied}</span> <span className="dim">without metadata.managedFields</span>
      </p>
      {/* A scrolling region has to be reachable by keyboard. */}
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex */}
      <pre tabIndex={0}>
        <code>{text}</code>
      </pre>
    </section>
  );
}
