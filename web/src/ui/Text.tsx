/**
 * Texts that come from clusters and repositories. They may be of any language and direction, have markup in them, and be very
 * long: each is set apart in its own direction, and is text whatever it looks like.
 */
import type { ReactNode } from 'react';
import { useState } from 'react';

import { shortRevision, webAddress } from '../lib/words';
import { Icon } from './icons';

/** A name. */
export function Name({ children }: { children: string }): ReactNode {
  return (
    <bdi className="name" title={children.length > 40 ? children.slice(0, 500) : undefined}>
      {children}
    </bdi>
  );
}

/** A revision in a table: of a commit the first digits, and never broken in its middle. */
export function Revision({ children }: { children: string }): ReactNode {
  return (
    <bdi className="name clip" title={children.slice(0, 500)}>
      {shortRevision(children) || '–'}
    </bdi>
  );
}

const SHORT = 400;

/** A message of any length: its beginning, and the rest when asked for. */
export function Message({ text }: { text: string }): ReactNode {
  const [whole, setWhole] = useState(false);
  const long = text.length > SHORT;
  const shown = long && !whole ? `${text.slice(0, SHORT)}…` : text;
  return (
    <div className="message">
      <p dir="auto">{shown}</p>
      {long && (
        <button type="button" className="quiet" onClick={() => setWhole(!whole)} aria-expanded={whole}>
          {whole ? 'Show less' : `Show all ${text.length.toLocaleString('en')} characters`}
        </button>
      )}
    </div>
  );
}

/** A link to elsewhere where the text is an address of the web, and the text alone where it is anything else. */
export function ExternalLink({ address, children }: { address: string; children?: ReactNode }): ReactNode {
  const href = webAddress(address);
  if (href === null) return <bdi className="name">{children ?? address}</bdi>;
  return (
    // eslint-disable-next-line no-restricted-syntax -- webAddress has let it through
    <a href={href} target="_blank" rel="noopener noreferrer nofollow" className="external">
      <bdi>{children ?? address}</bdi>
      <Icon name="external" />
      <span className="unseen"> (opens in a new tab)</span>
    </a>
  );
}
