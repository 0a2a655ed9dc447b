/**
 * A table of any length: only the rows in sight are in the document. It is a table to screen readers, with the count of all of
 * its rows; arrow keys go from row to row, Enter follows the row's link.
 */
import { useVirtualizer } from '@tanstack/react-virtual';
import type { KeyboardEvent, ReactNode } from 'react';
import { useEffect, useRef } from 'react';

export interface Column<Row> {
  id: string;
  title: string;
  cell: (row: Row) => ReactNode;
  /** A class for its width and where it is left out. */
  className?: string;
}

interface Props<Row> {
  label: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  rowKey: (row: Row) => string;
  /** Classes of a row. */
  rowClass?: (row: Row) => string;
  /** Instead of a row's cells: a heading over the whole width. */
  heading?: (row: Row) => ReactNode | null;
  /** Called when the end comes into sight. */
  onEnd?: (() => void) | undefined;
  className?: string;
  /** As high as its rows are, up to a limit, in place of filling the page. */
  bounded?: boolean;
}

const HEIGHT = 44;

export function VirtualTable<Row>(props: Props<Row>): ReactNode {
  const { label, columns, rows, rowKey, onEnd } = props;
  const scroller = useRef<HTMLDivElement>(null);
  // eslint-disable-next-line react-hooks/incompatible-library -- its functions are called while drawing, and not kept
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => HEIGHT,
    overscan: 12,
    getItemKey: (index) => {
      const row = rows[index];
      return row === undefined ? index : rowKey(row);
    },
  });
  const items = virtual.getVirtualItems();
  const last = items.at(-1)?.index ?? -1;
  const scrolls = virtual.getTotalSize() > (virtual.scrollRect?.height ?? 0);
  useEffect(() => {
    if (onEnd && last >= rows.length - 20) onEnd();
  }, [last, rows.length, onEnd]);

  const move = (event: KeyboardEvent<HTMLDivElement>): void => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 }[event.key];
    const target = event.target as HTMLElement;
    if (step === undefined && event.key !== 'Home' && event.key !== 'End') return;
    const row = target.closest<HTMLElement>('[data-index]');
    if (!row) return;
    event.preventDefault();
    const from = Number(row.dataset.index);
    const wanted = event.key === 'Home' ? 0 : event.key === 'End' ? rows.length - 1 : from + (step ?? 0);
    const to = Math.max(0, Math.min(rows.length - 1, wanted));
    virtual.scrollToIndex(to);
    focusRow(scroller.current, to, 10);
  };

  return (
    <div
      className={`vtable ${props.className ?? ''}${props.bounded ? ' bounded' : ''}${scrolls ? ' scrolls' : ''}`}
      role="table"
      aria-label={label}
      aria-rowcount={rows.length + 1}
    >
      <div role="rowgroup" className="vhead">
        <div role="row" className="vrow" aria-rowindex={1}>
          {columns.map((column) => (
            <div role="columnheader" key={column.id} className={`cell ${column.className ?? ''}`}>
              {column.title}
            </div>
          ))}
        </div>
      </div>
      {/* A scrolling region has to be reachable by keyboard. */}
      {/* eslint-disable jsx-a11y/no-noninteractive-tabindex, jsx-a11y/no-noninteractive-element-interactions */}
      <div
        ref={scroller}
        className="vbody"
        role="rowgroup"
        tabIndex={0}
        onKeyDown={move}
        aria-label={`${label}: rows`}
        style={props.bounded ? { height: virtual.getTotalSize() + 1 } : undefined}
      >
        <div className="vspace" role="presentation" style={{ height: virtual.getTotalSize() }}>
          {items.map((item) => {
            const row = rows[item.index];
            if (row === undefined) return null;
            const heading = props.heading?.(row) ?? null;
            return (
              <div
                key={item.key}
                ref={virtual.measureElement}
                data-index={item.index}
                role="row"
                aria-rowindex={item.index + 2}
                className={`vrow ${heading === null ? (props.rowClass?.(row) ?? '') : 'vheading'}`}
                style={{ transform: `translateY(${item.start}px)` }}
              >
                {heading === null ? (
                  columns.map((column) => (
                    <div role="cell" key={column.id} className={`cell ${column.className ?? ''}`}>
                      {column.cell(row)}
                    </div>
                  ))
                ) : (
                  <div role="cell" className="cell" aria-colspan={columns.length}>
                    {heading}
                  </div>
                )}
              </div>
            );
          })}
        </div>
      </div>
    </div>
  );
}

/** Focuses a row's first link or button, once it is drawn. */
function focusRow(scroller: HTMLElement | null, index: number, tries: number): void {
  const row = scroller?.querySelector<HTMLElement>(`[data-index="${index}"]`);
  const target = row?.querySelector<HTMLElement>('a, button') ?? null;
  if (target) target.focus({ preventScroll: true });
  else if (tries > 0) requestAnimationFrame(() => focusRow(scroller, index, tries - 1));
}
