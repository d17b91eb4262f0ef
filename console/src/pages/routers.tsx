// Routers as a graph of topics, and as a table.
import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { call, pages, reason, type Schemas } from "../api.js";
import { useLoaded, useSession } from "../data.js";
import { whole } from "../format.js";
import { print } from "../json.js";
import { amend, link, type Route } from "../route.js";
import { Badge, Button, Confirm, Dialog, Empty, Facts, Field, Head, Of, Table, type Column } from "../ui.js";

type Router = Schemas["RouterListAnswer"]["routers"][number];

const BOX = { width: 190, height: 34, gapX: 110, gapY: 18 };
/** The most routers that are drawn; the filter finds the others. */
const MOST_DRAWN = 80;

export function RoutersPage({ route }: { route: Route }): JSX.Element {
  const { lacks } = useSession();
  const [making, setMaking] = useState(false);
  const [open, setOpen] = useState<Router>();
  const [deleting, setDeleting] = useState<Router>();
  const filter = route.query.get("q") ?? "";
  const loaded = useLoaded((signal) => pages<Router>("/v0/routers", "routers", 10_000, {}, signal), [], 3_000);
  const shown = useMemo(() => (loaded.data?.[0] ?? []).filter((router) => `${router.router} ${router.source} ${router.dest}`.toLowerCase().includes(filter.toLowerCase())), [loaded.data, filter]);
  const columns: Column<Router>[] = [
    { name: "Router", cell: (router) => <button type="button" class="button quiet" onClick={() => setOpen(router)}>{router.router}</button>, by: (router) => router.router, width: "minmax(0, 2fr)" },
    { name: "From", cell: (router) => <a href={link(["topics", router.source])}>{router.source}</a>, by: (router) => router.source, width: "minmax(0, 2fr)" },
    { name: "To", cell: (router) => <a href={link(["topics", router.dest])}>{router.dest}</a>, by: (router) => router.dest, width: "minmax(0, 2fr)" },
    { name: "State", cell: (router) => (router.blocked ? <Badge kind="bad">{router.blocked}</Badge> : <Badge kind="good">active</Badge>), by: (router) => router.blocked ?? "", width: "72px" },
    { name: "Lag", cell: (router) => whole(router.lag), by: (router) => router.lag, isNumber: true },
    { name: "Copied", cell: (router) => whole(router.forwarded_total), by: (router) => router.forwarded_total, isNumber: true, isMinor: true },
  ];
  return (
    <>
      <Head title="Routers"><Button kind="main" unless={lacks("admin")} onClick={() => setMaking(true)}>New router</Button></Head>
      <div class="tools"><Field label="Filter">{(id) => <input id={id} type="search" value={filter} placeholder="router or topic" onInput={(event) => amend({ q: event.currentTarget.value })} />}</Field></div>
      <Of loaded={loaded}>{([all]) => (all.length === 0
        ? <Empty title="There are no routers."><p>A router copies what is appended to one topic into another.</p></Empty>
        : (
          <>
            {shown.length > MOST_DRAWN ? <p class="card">The graph shows at most {MOST_DRAWN} routers. Filter to see a part of it.</p> : <Graph routers={shown} />}
            <Table label="Routers" columns={columns} rows={shown} id={(router) => router.router} empty={<Empty title="No router matches." />} />
          </>
        ))}</Of>
      {making && <NewRouter close={() => { setMaking(false); loaded.reload(); }} />}
      {open !== undefined && deleting === undefined && (
        <Dialog title={open.router} close={() => setOpen(undefined)}>
          <div>
            <Facts facts={[
              ["From", <a href={link(["topics", open.source])}>{open.source}</a>], ["To", <a href={link(["topics", open.dest])}>{open.dest}</a>],
              ["State", open.blocked ? <Badge kind="bad">{open.blocked}</Badge> : <Badge kind="good">active</Badge>],
              ["Lag", whole(open.lag)], ["Copied", whole(open.forwarded_total)],
              ["Filter", open.filter ? <code>{print(open.filter)}</code> : "none: all records"],
            ]} />
            <p class="actions"><Button kind="danger" unless={lacks("delete")} onClick={() => setDeleting(open)}>Delete router</Button></p>
          </div>
        </Dialog>
      )}
      {deleting !== undefined && (
        <Confirm title={`Delete ${deleting.router}`} action="Delete router" close={() => { setDeleting(undefined); setOpen(undefined); loaded.reload(); }}
          losses={[`the position of the router; ${whole(deleting.lag)} records of ${deleting.source} are not copied`]}
          run={async () => { await call("DELETE", `/v0/routers/${encodeURIComponent(deleting.router)}`); }}>
          <p>Copies in {deleting.dest} stay.</p>
        </Confirm>
      )}
    </>
  );
}

interface Placed {
  name: string;
  x: number;
  y: number;
}

/** Each topic one column to the right of what it is copied from. Cycles are cut where they close. */
export function layout(routers: readonly Router[]): Map<string, Placed> {
  const into = new Map<string, string[]>();
  for (const { source, dest } of routers) {
    if (!into.has(source)) into.set(source, []);
    into.set(dest, [...(into.get(dest) ?? []), source]);
  }
  const depth = new Map<string, number>();
  const visit = (name: string, path: ReadonlySet<string>): number => {
    const known = depth.get(name);
    if (known !== undefined) return known;
    if (path.has(name)) return 0;
    const above = (into.get(name) ?? []).map((source) => visit(source, new Set([...path, name])) + (path.has(source) ? 0 : 1));
    const found = Math.max(0, ...above);
    depth.set(name, found);
    return found;
  };
  const placed = new Map<string, Placed>();
  const filled: number[] = [];
  for (const name of [...into.keys()].sort()) {
    const column = visit(name, new Set());
    const line = filled[column] ?? 0;
    filled[column] = line + 1;
    placed.set(name, { name, x: 16 + column * (BOX.width + BOX.gapX), y: 16 + line * (BOX.height + BOX.gapY) });
  }
  return placed;
}

function Graph({ routers }: { routers: readonly Router[] }): JSX.Element {
  const placed = useMemo(() => layout(routers), [routers]);
  const all = [...placed.values()];
  const width = Math.max(...all.map((each) => each.x), 0) + BOX.width + 16;
  const height = Math.max(...all.map((each) => each.y), 0) + BOX.height + 16;
  return (
    <div class="graph" tabIndex={0} role="group" aria-label="Graph of the routers; the table below has the same">
      <svg width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="group" aria-label={routers.map((router) => `${router.source} to ${router.dest}`).join(", ")}>
        <defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" /></marker></defs>
        {routers.map((router) => <Edge key={router.router} router={router} from={placed.get(router.source)} to={placed.get(router.dest)} />)}
        {all.map((each) => (
          <a key={each.name} href={link(["topics", each.name])} aria-label={each.name}>
            <rect x={each.x} y={each.y} width={BOX.width} height={BOX.height} rx={6} />
            <text x={each.x + 10} y={each.y + 21}>{each.name.length > 26 ? `${each.name.slice(0, 25)}…` : each.name}</text>
          </a>
        ))}
      </svg>
    </div>
  );
}

function Edge({ router, from, to }: { router: Router; from: Placed | undefined; to: Placed | undefined }): JSX.Element | null {
  if (from === undefined || to === undefined) return null;
  const [x1, y1] = [from.x + BOX.width, from.y + BOX.height / 2];
  const [x2, y2] = [to.x, to.y + BOX.height / 2];
  const bend = Math.max(40, Math.abs(x2 - x1) / 2);
  const text = router.blocked ? router.blocked : router.lag > 0 ? `lag ${whole(router.lag)}` : router.filter ? "filtered" : "";
  return (
    <g class={router.blocked ? "blocked" : ""}>
      <title>{router.router}</title>
      <path d={`M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`} marker-end="url(#arrow)" />
      <text class="label" x={(x1 + x2) / 2} y={(y1 + y2) / 2 - 5} text-anchor="middle">{text}</text>
    </g>
  );
}

function NewRouter({ close }: { close: () => void }): JSX.Element {
  const [fields, setFields] = useState({ router: "", source: "", dest: "", tag: "", from: "head" });
  const [error, setError] = useState<string>();
  const set = (name: keyof typeof fields) => (event: { currentTarget: { value: string } }): void => setFields({ ...fields, [name]: event.currentTarget.value });
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    const { router, source, dest, tag, from } = fields;
    const filter = tag === "" ? null : tag.endsWith("*") ? ["tag", "Glob", tag] : ["tag", "Eq", tag];
    try {
      await call("PUT", `/v0/routers/${encodeURIComponent(router)}`, { body: { source, dest, filter, from } });
      close();
    } catch (failure) {
      setError(reason(failure));
    }
  };
  return (
    <Dialog title="New router" close={close}>
      <form onSubmit={(event) => void submit(event)}>
        <Field label="Name">{(id) => <input id={id} required value={fields.router} autocomplete="off" spellcheck={false} onInput={set("router")} />}</Field>
        <Field label="Source" hint="Created if it does not exist.">{(id) => <input id={id} required value={fields.source} autocomplete="off" spellcheck={false} onInput={set("source")} />}</Field>
        <Field label="Destination" hint="Created if it does not exist.">{(id) => <input id={id} required value={fields.dest} autocomplete="off" spellcheck={false} onInput={set("dest")} />}</Field>
        <Field label="Only the tag" hint="Empty: all records. x* : all tags that begin with x.">{(id) => <input id={id} value={fields.tag} onInput={set("tag")} />}</Field>
        <Field label="From">{(id) => <select id={id} value={fields.from} onChange={set("from")}><option value="head">what is appended from now on</option><option value="earliest">the oldest record</option></select>}</Field>
        {error !== undefined && <p class="error" role="alert">{error}</p>}
        <p class="actions"><Button onClick={close}>Cancel</Button><Button type="submit" kind="main">Create</Button></p>
      </form>
    </Dialog>
  );
}
