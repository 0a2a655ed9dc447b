import type { ReactNode } from 'react';

import type { KubeObject } from '../api/kinds';
import { Labels } from './Labels';
import { ExternalLink } from './Text';
import { Age } from './Time';

/** Annotations that repeat the object, or that tools keep for themselves. */
const HIDDEN = ['kubectl.kubernetes.io/last-applied-configuration'];
const LONG = 300;

/** Facts of an object: rows of its own, its labels, and its annotations, of which addresses of the web are links. */
export function Details({
  object,
  rows,
}: {
  object: KubeObject;
  rows: readonly [string, ReactNode][];
}): ReactNode {
  const { metadata } = object;
  const annotations = Object.entries(metadata.annotations ?? {}).filter(([key]) => !HIDDEN.includes(key));
  return (
    <dl className="details">
      {rows.map(([title, value]) => (
        <div key={title}>
          <dt>{title}</dt>
          <dd>{value}</dd>
        </div>
      ))}
      <div>
        <dt>Created</dt>
        <dd>
          <Age at={metadata.creationTimestamp} suffix=" ago" />
        </dd>
      </div>
      {Object.keys(metadata.labels ?? {}).length > 0 && (
        <div>
          <dt>Labels</dt>
          <dd>
            <Labels labels={metadata.labels ?? {}} />
          </dd>
        </div>
      )}
      {annotations.map(([key, value]) => (
        <div key={key}>
          <dt>
            <bdi>{key.slice(0, 253)}</bdi>
          </dt>
          <dd>
            <ExternalLink address={value}>
              {value.length > LONG ? `${value.slice(0, LONG)}…` : value}
            </ExternalLink>
          </dd>
        </div>
      ))}
    </dl>
  );
}
