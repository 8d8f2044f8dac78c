import type { ComponentChildren } from "preact";
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { keepScroll, keptScroll } from "../scroll_memory";
import "./rows.css";

/** Height of a row in pixels: the same for all, so that the place of each is known without a look at the others. */
const ROW_PX = 34;
const OVERSCAN = 4;

export interface RowColumn<T> {
  id: string;
  title: string;
  /** Width in characters; 0 is what the others leave. */
  width: number;
  cell: (row: T) => ComponentChildren;
  numeric?: boolean;
  sorts?: boolean;
}

interface RowsProps<T> {
  /** What the table has, for those who cannot see it. */
  label: string;
  rows: readonly T[];
  columns: readonly RowColumn<T>[];
  keyOf: (row: T) => string;
  /** Name of a row, for the label of its check box. */
  nameOf: (row: T) => string;
  order?: { column: string; descending: boolean };
  onOrder?: (column: string) => void;
  selected?: ReadonlySet<string>;
  onSelect?: (keys: string[], isSelected: boolean) => void;
  onOpen?: (row: T) => void;
  /** Further keys; returns whether the key was used. */
  onKey?: (event: KeyboardEvent, row: T) => boolean;
  empty?: ComponentChildren;
}

/**
 * A table of any number of rows, of which only those in sight are elements. One row at a time takes part in the order of
 * TAB: arrows, Page Up, Page Down, Home and End go to others, Enter opens one, Space selects it.
 */
export function Rows<T>(props: RowsProps<T>) {
  const { rows, columns, keyOf, selected, onSelect } = props;
  const box = useRef<HTMLDivElement>(null);
  const { first, last, firstInSight, look } = useWindow(box, rows.length);
  const keep = useKeptRows(box, props.label, rows.length);
  const [active, setActive] = useState("");
  const hasFocus = useRef(false);
  const found = active ? rows.findIndex((row) => keyOf(row) === active) : 0;
  // A row that is out of sight is no element, so the first one in sight takes part in the order of TAB.
  const index = found >= first && found < last ? found : firstInSight;

  useLayoutEffect(() => {
    // The row that a key went to is an element only now.
    if (hasFocus.current) box.current?.querySelector<HTMLElement>("tr[tabindex='0']")?.focus({ preventScroll: true });
  }, [active, first, last]);

  const goTo = (to: number): void => {
    const row = rows[Math.min(Math.max(to, 0), rows.length - 1)];
    if (!row || !box.current) return;
    hasFocus.current = true;
    setActive(keyOf(row));
    bringIntoSight(box.current, rows.indexOf(row));
    look();
  };
  const press = (event: KeyboardEvent): void => {
    const row = rows[index];
    if (!row || event.ctrlKey || event.metaKey || event.altKey || event.target instanceof HTMLInputElement) return;
    const page = Math.max(1, Math.floor((box.current?.clientHeight ?? 0) / ROW_PX) - 2);
    const to = goal(event.key, index, page, rows.length);
    if (to !== undefined) goTo(to);
    else if (event.key === "Enter" && !(event.target instanceof HTMLAnchorElement)) props.onOpen?.(row);
    else if (event.key === " " && onSelect) onSelect([keyOf(row)], !selected?.has(keyOf(row)));
    else if (!props.onKey?.(event, row)) return;
    event.preventDefault();
  };

  const width = columns.reduce((sum, column) => sum + column.width, onSelect ? 5 : 0);
  return (
    <div
      class="rows"
      ref={box}
      onScroll={() => {
        look();
        keep();
      }}
    >
      <table aria-label={props.label} aria-rowcount={rows.length + 1} style={{ minWidth: `${width}ch` }}>
        <Head {...props} />
        <tbody
          onKeyDown={press}
          onFocusIn={() => (hasFocus.current = true)}
          onFocusOut={() => (hasFocus.current = false)}
        >
          <Gap rows={first} columns={columns.length + (onSelect ? 1 : 0)} />
          {rows.slice(first, last).map((row, offset) => (
            // An element for each place in sight, whose texts change: new elements would make scrolling slow.
            <Row
              key={offset}
              {...props}
              row={row}
              index={first + offset}
              isActive={first + offset === index}
              onActive={() => setActive(keyOf(row))}
            />
          ))}
          <Gap rows={rows.length - last} columns={columns.length + (onSelect ? 1 : 0)} />
        </tbody>
      </table>
      {!rows.length && <div class="empty">{props.empty}</div>}
    </div>
  );
}

/** The row to which a key goes; undefined for other keys. */
function goal(key: string, index: number, page: number, count: number): number | undefined {
  const goals: Record<string, number> = {
    ArrowDown: index + 1,
    ArrowUp: index - 1,
    PageDown: index + page,
    PageUp: index - page,
    Home: 0,
    End: count - 1,
  };
  return goals[key];
}

interface RowProps<T> extends RowsProps<T> {
  row: T;
  index: number;
  isActive: boolean;
  onActive: () => void;
}

function Row<T>({ row, index, isActive, onActive, columns, keyOf, nameOf, selected, onSelect, onOpen }: RowProps<T>) {
  const key = keyOf(row);
  return (
    <tr
      class={selected?.has(key) ? "selected" : undefined}
      aria-rowindex={index + 2}
      tabIndex={isActive ? 0 : -1}
      style={{ height: `${ROW_PX}px` }}
      onFocus={onActive}
      onDblClick={() => onOpen?.(row)}
    >
      {onSelect && (
        <td class="check">
          <input
            type="checkbox"
            tabIndex={-1}
            aria-label={`Select ${nameOf(row)}`}
            checked={selected?.has(key) ?? false}
            onChange={(event) => onSelect([key], event.currentTarget.checked)}
          />
        </td>
      )}
      {columns.map((column) => (
        <td key={column.id} class={column.numeric ? "numeric" : undefined}>
          {column.cell(row)}
        </td>
      ))}
    </tr>
  );
}

function Head<T>({ rows, columns, keyOf, order, onOrder, selected, onSelect }: RowsProps<T>) {
  const all = rows.length > 0 && selected !== undefined && rows.every((row) => selected.has(keyOf(row)));
  return (
    <thead>
      <tr aria-rowindex={1}>
        {onSelect && (
          <th class="check" style={{ width: "5ch" }}>
            <input
              type="checkbox"
              aria-label="Select all rows"
              checked={all}
              onChange={(event) => onSelect(rows.map(keyOf), event.currentTarget.checked)}
            />
          </th>
        )}
        {columns.map((column) => {
          const sorted = order?.column === column.id;
          const direction = order?.descending ? "descending" : "ascending";
          return (
            <th
              key={column.id}
              scope="col"
              class={column.numeric ? "numeric" : undefined}
              style={column.width ? { width: `${column.width}ch` } : {}}
              aria-sort={sorted ? direction : undefined}
            >
              {onOrder && column.sorts !== false ? (
                <button type="button" class="sort" onClick={() => onOrder(column.id)}>
                  {column.title}
                  <span aria-hidden="true">{sorted ? (order?.descending ? " ▾" : " ▴") : ""}</span>
                </button>
              ) : (
                column.title
              )}
            </th>
          );
        })}
      </tr>
    </thead>
  );
}

/** The room of rows that are out of sight. */
function Gap({ rows, columns }: { rows: number; columns: number }) {
  if (rows <= 0) return null;
  return (
    <tr class="gap" aria-hidden="true">
      <td colSpan={columns} style={{ height: `${rows * ROW_PX}px` }} />
    </tr>
  );
}

/** The rows in sight of a box that scrolls: from `first` up to, and without, `last`. */
function useWindow(box: { current: HTMLDivElement | null }, count: number) {
  const [seen, setSeen] = useState({ top: 0, height: 800 });
  const look = useCallback(() => {
    const element = box.current;
    if (!element) return;
    const top = Math.floor(element.scrollTop / ROW_PX) * ROW_PX;
    const height = element.clientHeight;
    setSeen((before) => (before.top === top && before.height === height ? before : { top, height }));
  }, []);
  useEffect(() => {
    if (!box.current) return undefined;
    const observer = new ResizeObserver(look);
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  useEffect(look, [count]);
  const first = Math.min(Math.max(0, seen.top / ROW_PX - OVERSCAN), Math.max(0, count - 1));
  const last = Math.min(count, Math.ceil((seen.top + seen.height) / ROW_PX) + OVERSCAN);
  const firstInSight = Math.min(seen.top / ROW_PX, Math.max(0, count - 1));
  return { first, last: Math.max(first, last), firstInSight, look };
}

/** Scroll to where this entry of the history was left, once there are as many rows. Returns what keeps that place. */
function useKeptRows(box: { current: HTMLDivElement | null }, label: string, count: number): () => void {
  const wanted = useRef(keptScroll(label));
  useLayoutEffect(() => {
    const element = box.current;
    if (!element || !wanted.current || element.scrollHeight - element.clientHeight < wanted.current) return;
    element.scrollTop = wanted.current;
    wanted.current = 0;
  }, [count]);
  return () => {
    wanted.current = 0;
    keepScroll(label, box.current?.scrollTop ?? 0);
  };
}

/** Scroll so that a row is between the head and the end of the box. */
function bringIntoSight(box: HTMLDivElement, index: number): void {
  const head = ROW_PX;
  const top = index * ROW_PX;
  if (top < box.scrollTop) box.scrollTop = top;
  else if (top + ROW_PX + head > box.scrollTop + box.clientHeight) {
    box.scrollTop = top + ROW_PX + head - box.clientHeight;
  }
}
