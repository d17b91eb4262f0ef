// The parts that all pages are made of.
import type { ComponentChildren, ComponentProps, JSX } from "preact";
import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { isMissing, isUnauthorized, reason } from "./api.js";
import type { Loaded } from "./data.js";
import { short } from "./format.js";

type Children = { children?: ComponentChildren };

/** A page's title, with what may be done on it. */
export function Head({ title, children }: Children & { title: ComponentChildren }): JSX.Element {
  return (
    <header class="head">
      <h1>{title}</h1>
      <div class="actions">{children}</div>
    </header>
  );
}

/** `unless`: why it cannot be used now; the button is then disabled and says so. */
export function Button({ children, kind, unless, disabled, title, ...rest }: ComponentProps<"button"> & { kind?: "main" | "danger" | "quiet" | undefined; unless?: string | undefined }): JSX.Element {
  return <button type="button" class={`button ${kind ?? ""}`} {...rest} disabled={disabled === true || unless !== undefined} title={unless ?? title}>{children}</button>;
}

/** A label of a state: its colour never says it alone. */
export function Badge({ kind, children }: Children & { kind?: "good" | "warn" | "bad" | "info" | undefined }): JSX.Element {
  return <span class={`badge ${kind ?? ""}`}>{children}</span>;
}

export function Empty({ title, children }: Children & { title: string }): JSX.Element {
  return (
    <div class="empty">
      <p class="lead">{title}</p>
      {children}
    </div>
  );
}

/** What is shown instead of content while there is none, or beside old content after an error. */
export function Of<T>({ loaded, children, missing }: { loaded: Loaded<T>; children: (data: T) => ComponentChildren; missing?: ComponentChildren }): JSX.Element {
  if (loaded.data === undefined) {
    if (loaded.error === undefined) return <Loading />;
    if (missing !== undefined && isMissing(loaded.error)) return <>{missing}</>;
    return <Failed error={loaded.error} again={loaded.reload} />;
  }
  return (
    <>
      {loaded.error !== undefined && <Failed error={loaded.error} again={loaded.reload} isStale />}
      {children(loaded.data)}
    </>
  );
}

export function Loading(): JSX.Element {
  return <div class="loading" role="status"><span>Loading</span></div>;
}

export const NeedsKey = (): JSX.Element => <Empty title="The broker asks for an API key."><p>Use the button “Key” above.</p></Empty>;

export function Failed({ error, again, isStale }: { error: unknown; again: () => void; isStale?: boolean }): JSX.Element {
  if (isUnauthorized(error)) return <NeedsKey />;
  return (
    <div class={isStale ? "failed stale" : "failed"} role="alert">
      <p>{isStale ? "What is shown may be out of date. " : ""}{reason(error)}</p>
      <Button onClick={again}>Try again</Button>
    </div>
  );
}

/** A line through values, the oldest first. Its text says the last and the largest value. `full`: what has at least the whole height. */
export function Spark({ values, label, format = short, full = 1e-9 }: { values: readonly number[]; label: string; format?: (value: number) => string; full?: number | undefined }): JSX.Element {
  if (values.length < 2) return <div class="spark none" aria-hidden="true" />;
  const width = 240;
  const height = 36;
  const most = Math.max(...values);
  const top = Math.max(most, full);
  const step = width / (values.length - 1);
  const points = values.map((value, at) => `${(at * step).toFixed(1)},${(height - 2 - (Math.max(0, value) / top) * (height - 4)).toFixed(1)}`);
  const text = `${label}: now ${format(values.at(-1) ?? 0)}, at most ${format(most)} in the last ${values.length} points`;
  return (
    <svg class="spark" viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" role="img" aria-label={text}>
      <polygon points={`0,${height} ${points.join(" ")} ${width},${height}`} />
      <polyline points={points.join(" ")} />
    </svg>
  );
}

export function Tile({ title, value, note, href, values, format, full, kind }: {
  title: string; value: string; note?: ComponentChildren; href?: string | undefined; values?: readonly number[] | undefined;
  format?: (value: number) => string; full?: number; kind?: "warn" | "bad" | undefined;
}): JSX.Element {
  return (
    <section class={`tile ${kind ?? ""}`}>
      <h2>{title}</h2>
      <p class="value">{href === undefined ? value : <a href={href}>{value}</a>}</p>
      <p class="note">{note ?? "\u00a0"}</p>
      {values !== undefined && <Spark values={values} label={title} format={format ?? short} full={full} />}
    </section>
  );
}

export interface Column<T> {
  name: string;
  cell: (row: T) => ComponentChildren;
  /** What rows are sorted by; without it the column is not sortable. */
  by?: (row: T) => string | number;
  /** A width of CSS grid. */
  width?: string;
  isNumber?: boolean;
  /** Left out on narrow screens. */
  isMinor?: boolean;
}

const ROW = 34;
const MARGIN = 20;

/** A table of any length: of a long one only the rows in sight exist. */
export function Table<T>({ columns, rows, id, label, start, empty }: {
  columns: Column<T>[]; rows: readonly T[]; id: (row: T) => string; label: string;
  start?: { column: string; isDown: boolean }; empty?: ComponentChildren;
}): JSX.Element {
  const [sort, setSort] = useState(start);
  const [narrow, setNarrow] = useState(() => window.innerWidth < 700);
  const [scroll, setScroll] = useState(0);
  const frame = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const sized = (): void => setNarrow(window.innerWidth < 700);
    window.addEventListener("resize", sized);
    return () => window.removeEventListener("resize", sized);
  }, []);
  if (rows.length === 0) return <>{empty ?? <Empty title="Nothing here." />}</>;
  const shown = narrow ? columns.filter((column) => !column.isMinor) : columns;
  const sorted = ordered(rows, columns, sort);
  const isLong = rows.length > 100;
  const height = isLong ? Math.max(320, Math.min(rows.length * ROW, window.innerHeight - 260)) : 0;
  const first = isLong ? Math.max(0, Math.floor(scroll / ROW) - MARGIN) : 0;
  const last = isLong ? Math.min(sorted.length, Math.ceil((scroll + height) / ROW) + MARGIN) : sorted.length;
  const grid = { gridTemplateColumns: shown.map((column) => column.width ?? (column.isNumber ? "minmax(64px, 1fr)" : "minmax(0, 2fr)")).join(" ") };
  return (
    <div class="table" role="table" aria-label={label} aria-rowcount={rows.length + 1}>
      <div role="rowgroup" class={isLong ? "long-head" : ""}>
        <div class="tr th" role="row" style={grid}>
          {shown.map((column) => {
            const direction = sort?.column === column.name ? (sort.isDown ? "descending" : "ascending") : undefined;
            return (
              <div key={column.name} role="columnheader" class={column.isNumber ? "number" : ""} aria-sort={direction ?? "none"}>
                {column.by === undefined ? column.name : (
                  <button type="button" class="sort" onClick={() => setSort({ column: column.name, isDown: direction === undefined ? column.isNumber === true : direction === "ascending" })}>
                    {column.name}<span aria-hidden="true">{direction === "descending" ? " ↓" : direction === "ascending" ? " ↑" : ""}</span>
                  </button>
                )}
              </div>
            );
          })}
        </div>
      </div>
      <div class={isLong ? "rows long" : "rows"} role="rowgroup" ref={frame} style={isLong ? { height: `${height}px` } : {}}
        {...(isLong ? { tabIndex: 0, onScroll: () => setScroll(frame.current?.scrollTop ?? 0) } : {})}>
        {isLong && <div role="presentation" style={{ height: `${first * ROW}px` }} />}
        {sorted.slice(first, last).map((row, at) => (
          <div class="tr" role="row" key={id(row)} style={grid} aria-rowindex={first + at + 2}>
            {shown.map((column) => (
              <div key={column.name} role="cell" class={column.isNumber ? "number" : ""}>{column.cell(row)}</div>
            ))}
          </div>
        ))}
        {isLong && <div role="presentation" style={{ height: `${(sorted.length - last) * ROW}px` }} />}
      </div>
    </div>
  );
}

function ordered<T>(rows: readonly T[], columns: Column<T>[], sort: { column: string; isDown: boolean } | undefined): readonly T[] {
  const by = columns.find((column) => column.name === sort?.column)?.by;
  if (by === undefined) return rows;
  const sign = sort?.isDown ? -1 : 1;
  return [...rows].sort((one, other) => {
    const [a, b] = [by(one), by(other)];
    return a < b ? -sign : a > b ? sign : 0;
  });
}

export function Tabs({ tabs, current, href }: { tabs: readonly { id: string; name: ComponentChildren }[]; current: string; href: (id: string) => string }): JSX.Element {
  return (
    <nav class="tabs" aria-label="Parts of this page">
      {tabs.map((tab) => (
        <a key={tab.id} href={href(tab.id)} aria-current={tab.id === current ? "page" : undefined}>{tab.name}</a>
      ))}
    </nav>
  );
}

/** A question in front of the page. Escape closes it; the focus goes back to where it was. */
export function Dialog({ title, close, children }: Children & { title: string; close: () => void }): JSX.Element {
  const element = useRef<HTMLDialogElement>(null);
  const name = useId();
  // Open before the browser takes the next key: what is typed at once goes into the question, not to the page behind it.
  useLayoutEffect(() => {
    const dialog = element.current;
    const before = document.activeElement;
    dialog?.showModal();
    // Enter does what was asked for, unless something would be lost.
    (dialog?.querySelector<HTMLElement>("input, select, textarea, .actions .main:enabled") ?? dialog?.querySelector<HTMLElement>(".actions button"))?.focus();
    return () => {
      dialog?.close();
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog ref={element} aria-labelledby={name} onCancel={(event) => { event.preventDefault(); close(); }}>
      <header><h2 id={name}>{title}</h2><Button kind="quiet" aria-label="Close" onClick={close}>×</Button></header>
      {children}
    </dialog>
  );
}

/** Asks before something that cannot be undone. `name`: what has to be typed; `losses`: what is lost. */
export function Confirm({ title, action, losses, name, run, close, isReady = true, children }: Children & {
  title: string; action: string; losses: readonly string[]; name?: string | undefined; run: () => Promise<void>; close: () => void; isReady?: boolean;
}): JSX.Element {
  const [typed, setTyped] = useState("");
  const [error, setError] = useState<unknown>();
  const [busy, setBusy] = useState(false);
  const field = useId();
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      await run();
      close();
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };
  return (
    <Dialog title={title} close={close}>
      <form onSubmit={(event) => void submit(event)}>
        {children}
        {losses.length > 0 && <div class="losses"><p>This cannot be undone:</p><ul>{losses.map((loss) => <li key={loss}>{loss}</li>)}</ul></div>}
        {name !== undefined && (
          <p class="field"><label for={field}>Type <b class="name">{name}</b> to confirm</label>
            <input id={field} value={typed} autocomplete="off" spellcheck={false} onInput={(event) => setTyped(event.currentTarget.value)} /></p>
        )}
        {error !== undefined && <p class="error" role="alert">{reason(error)}</p>}
        <p class="actions">
          <Button onClick={close}>Cancel</Button>
          <Button type="submit" kind={losses.length > 0 ? "danger" : "main"} disabled={busy || !isReady || (name !== undefined && typed !== name)}>{action}</Button>
        </p>
      </form>
    </Dialog>
  );
}

/** A label with its input. */
export function Field({ label, hint, children }: { label: string; hint?: ComponentChildren; children: (id: string) => ComponentChildren }): JSX.Element {
  const id = useId();
  return <p class="field"><label for={id}>{label}</label>{children(id)}{hint !== undefined && <small>{hint}</small>}</p>;
}

export function Facts({ facts }: { facts: readonly [string, ComponentChildren][] }): JSX.Element {
  return <dl class="facts">{facts.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>;
}
