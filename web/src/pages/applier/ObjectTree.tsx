/** Objects as a tree, by namespace and kind: with the keys that trees have, and only the rows in sight in the document. */
import { useVirtualizer } from '@tanstack/react-virtual';
import type { KeyboardEvent, ReactNode } from 'react';
import { useCallback, useMemo, useRef, useState } from 'react';

import { Icon } from '../../ui/icons';
import { Status } from '../../ui/Status';
import { Name } from '../../ui/Text';
import { count } from '../../lib/words';
import type { OwnedObject, TreeRow } from './objects';
import { tree } from './objects';

const HEIGHT = 34;

export function ObjectTree({ objects }: { objects: readonly OwnedObject[] }): ReactNode {
  const [closed, setClosed] = useState<ReadonlySet<string>>(new Set());
  const [active, setActive] = useState(0);
  const rows = useMemo(() => tree(objects, closed), [objects, closed]);
  const scroller = useRef<HTMLDivElement>(null);
  // eslint-disable-next-line react-hooks/incompatible-library -- its functions are called while drawing, and not kept
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => HEIGHT,
    overscan: 15,
    getItemKey: (index) => rows[index]?.key ?? index,
  });

  const set = useCallback((key: string, open: boolean) => {
    setClosed((held) => {
      const next = new Set(held);
      if (open) next.delete(key);
      else next.add(key);
      return next;
    });
  }, []);

  const at = Math.min(active, rows.length - 1);
  const goTo = (index: number): void => {
    const to = Math.max(0, Math.min(rows.length - 1, index));
    setActive(to);
    virtual.scrollToIndex(to);
  };
  const pressed = (event: KeyboardEvent): void => {
    const row = rows[at];
    if (!row) return;
    const to = target(event.key, rows, at);
    if (event.key === 'ArrowRight' && row.open === false) set(row.key, true);
    else if (event.key === 'ArrowLeft' && row.open === true) set(row.key, false);
    else if ((event.key === 'Enter' || event.key === ' ') && row.open !== undefined) set(row.key, !row.open);
    else if (to !== null) goTo(to);
    else return;
    event.preventDefault();
  };

  return (
    <div
      ref={scroller}
      className="tree"
      role="tree"
      aria-label="Objects"
      tabIndex={0}
      onKeyDown={pressed}
      aria-activedescendant={`row-${at}`}
    >
      <div className="vspace" role="presentation" style={{ height: virtual.getTotalSize() }}>
        {virtual.getVirtualItems().map((item) => {
          const row = rows[item.index];
          if (!row) return null;
          return (
            <TreeItem
              key={item.key}
              row={row}
              index={item.index}
              start={item.start}
              active={item.index === at}
              choose={() => {
                setActive(item.index);
                if (row.open !== undefined) set(row.key, !row.open);
              }}
            />
          );
        })}
      </div>
    </div>
  );
}

/** Where a key leads; none where it leads nowhere. */
function target(key: string, rows: readonly TreeRow[], at: number): number | null {
  const depth = rows[at]?.depth ?? 1;
  switch (key) {
    case 'ArrowDown':
      return at + 1;
    case 'ArrowUp':
      return at - 1;
    case 'ArrowRight':
      return (rows[at + 1]?.depth ?? 0) > depth ? at + 1 : null;
    case 'ArrowLeft': {
      const parent = rows.slice(0, at).findLastIndex((row) => row.depth < depth);
      return parent < 0 ? null : parent;
    }
    case 'Home':
      return 0;
    case 'End':
      return rows.length - 1;
    default:
      return null;
  }
}

function TreeItem({
  row,
  index,
  start,
  active,
  choose,
}: {
  row: TreeRow;
  index: number;
  start: number;
  active: boolean;
  choose: () => void;
}): ReactNode {
  const { object } = row;
  return (
    // The tree itself takes the keys, as trees do.
    // eslint-disable-next-line jsx-a11y/click-events-have-key-events
    <div
      id={`row-${index}`}
      role="treeitem"
      aria-level={row.depth}
      aria-posinset={row.position}
      aria-setsize={row.siblings}
      aria-selected={active}
      aria-expanded={row.open}
      tabIndex={-1}
      className={`tree-row depth-${row.depth}${active ? ' is-active' : ''}`}
      style={{ transform: `translateY(${start}px)` }}
      onClick={choose}
    >
      {row.open === undefined ? <span className="tree-leaf" /> : <Icon name="chevron" />}
      <Name>{row.title}</Name>
      {row.count !== undefined && <span className="dim">{count(row.count, 'object')}</span>}
      {(object !== undefined || row.state !== 'ok') && (
        <Status state={row.state} {...(object && { word: object.word })} />
      )}
      {object?.action && <span className={`action is-${object.action}`}>{object.action}</span>}
      {object && object.state !== 'ok' && object.why !== '' && (
        <span className="dim clip" title={object.why.slice(0, 1000)}>
          <bdi>{object.why.slice(0, 300)}</bdi>
        </span>
      )}
    </div>
  );
}
