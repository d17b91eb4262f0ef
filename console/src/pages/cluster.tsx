// The processes behind this address: one broker, a set of cells, or the nodes of a cluster.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { Cell, Cluster } from "../alerts.js";
import { call } from "../api.js";
import { useLoaded, useSession } from "../data.js";
import { bytes, duration, percent, whole } from "../format.js";
import { Badge, Button, Confirm, Facts, Field, Head, Of, Table, type Column } from "../ui.js";
import { loadCluster } from "./overview.js";

type Node = NonNullable<Cluster["nodes"]>[number];

const kindOf = (state: string): "good" | "warn" | "bad" => (state === "alive" || state === "ready" ? "good" : state === "draining" || state === "drained" || state === "starting" ? "warn" : "bad");

const nodes = (order: (node: Node) => JSX.Element): Column<Node>[] => [
  { name: "Node", cell: (node) => node.node, by: (node) => node.node, width: "minmax(0, 2fr)" },
  { name: "State", cell: (node) => <Badge kind={kindOf(node.state)}>{node.state === "silent" ? "gone" : node.state}</Badge>, by: (node) => node.state, width: "90px" },
  { name: "Sign of life", cell: (node) => `${duration(node.age_ms)} ago`, by: (node) => node.age_ms, isMinor: true },
  { name: "Cells", cell: (node) => (node.cells.length > 0 ? node.cells.join(", ") : "none") },
  { name: "Address", cell: (node) => node.http ?? "–", isMinor: true },
  { name: "Version", cell: (node) => node.version ?? "–", isMinor: true, width: "80px" },
  { name: "", cell: order, width: "84px" },
];
/** `order`: nothing in a set of cells on one machine, which have no other node to go to. */
const cells = (order: ((cell: Cell) => JSX.Element) | undefined): Column<Cell>[] => [
  { name: "Cell", cell: (cell) => cell.cell, by: (cell) => cell.cell, width: "44px" },
  { name: "State", cell: (cell) => <Badge kind={kindOf(cell.state)}>{cell.state}</Badge>, by: (cell) => cell.state, width: "90px" },
  { name: "Node", cell: (cell) => `${cell.node ?? (order === undefined ? "this machine" : "none")}${target(cell)}`, by: (cell) => cell.node ?? "" },
  { name: "Moving", cell: moving, width: "minmax(0, 4fr)", isMinor: true },
  { name: "Moves", cell: (cell) => cell.generation ?? "–", by: (cell) => cell.generation ?? 0, isNumber: true, isMinor: true },
  { name: "Restarts", cell: (cell) => cell.restarts, by: (cell) => cell.restarts, isNumber: true, isMinor: true },
  { name: "Address", cell: (cell) => cell.http ?? "–", isMinor: true },
  ...(order === undefined ? [] : [{ name: "", cell: order, width: "64px" }]),
];

/** The node that a cell is going to. */
function target(cell: Cell): string {
  const next = cell.takeover?.node ?? cell.wanted;
  return next === undefined || next === cell.node ? "" : ` → ${next}`;
}

/** Where a cell is going, and how far it is. */
function moving(cell: Cell): string {
  const { takeover, wanted } = cell;
  if (takeover !== undefined) {
    const since = duration(Math.max(0, Date.now() - takeover.since_ms));
    const done = takeover.state === "recovering" ? `, ${percent(takeover.progress)} of the log` : "";
    return `${takeover.node} is ${takeover.state}${done}, for ${since}`;
  }
  if (wanted !== undefined) return wanted === cell.node ? `ordered to stay on ${wanted}` : `ordered to ${wanted}`;
  return "–";
}

export function ClusterPage(): JSX.Element {
  const { live, health, lacks } = useSession();
  const [draining, setDraining] = useState<Node>();
  const [moved, setMoved] = useState<Cell>();
  const lack = lacks("admin", true);
  const loaded = useLoaded(async (signal) => ({ cluster: await loadCluster(signal) }), [], 2_000);
  const now = live.overview;
  return (
    <>
      <Head title="Cluster" />
      <Facts facts={[
        ["Version", health?.version ?? "–"],
        ["Kernel", health?.kernel ?? "–"],
        ["Cluster id", <span class="mono">{health?.cluster_id ?? "–"}</span>],
        ["Up", duration(now?.uptime_ms)],
        ["Shards of the log", now === undefined ? "–" : `${now.shards}${now.failed_shards > 0 ? `, ${now.failed_shards} failed` : ""}`],
        ["Memory", bytes(now?.resident_bytes)],
        ["Disk free", now === undefined ? "–" : `${bytes(now.disk_free_bytes)} of ${bytes(now.disk_bytes)}`],
        ["Connections", now === undefined ? "–" : whole(now.connections)],
        ["Pressure", now === undefined ? "–" : percent(now.pressure)],
      ]} />
      <Of loaded={loaded}>{({ cluster }) => (cluster === undefined
        ? <p class="card">This broker is alone: it is neither a set of cells nor a node of a cluster.</p>
        : (
          <>
            {cluster.nodes !== undefined && <><h2>Nodes</h2><Table label="Nodes" columns={nodes((node) => <Button kind="quiet" unless={lack} aria-label={node.drain ? `Undo the drain of ${node.node}` : `Drain ${node.node}`} onClick={() => setDraining(node)}>{node.drain ? "Undo" : "Drain"}</Button>)} rows={cluster.nodes} id={(node) => node.node} /></>}
            <h2>Cells</h2>
            <Table label="Cells" columns={cells(cluster.nodes && ((cell) => <Button kind="quiet" unless={lack} aria-label={`Move cell ${cell.cell}`} onClick={() => setMoved(cell)}>Move</Button>))} rows={cluster.cells ?? []} id={(cell) => String(cell.cell)} />
            <p><small>A cell has one part of the topics. “Moving” shows orders, and the node that gets ready to own the cell; “Moves” counts its owners so far.</small></p>
            {draining !== undefined && <Drain node={draining} close={() => { setDraining(undefined); loaded.reload(); }} />}
            {moved !== undefined && <Move cell={moved} nodes={cluster.nodes ?? []} close={() => { setMoved(undefined); loaded.reload(); }} />}
          </>
        ))}</Of>
    </>
  );
}

// Orders: the broker answers them at once, and the nodes carry them out one cell after the other. The tables show how far
// they are.

const EPHEMERAL = "all records of topics of class ephemeral: they are in the memory of the present process alone";

function Drain({ node, close }: { node: Node; close: () => void }): JSX.Element {
  const { say } = useSession();
  const isUndo = node.drain === true;
  const owned = node.cells.length;
  const run = async (): Promise<void> => {
    await call(isUndo ? "DELETE" : "PUT", `/v0/cluster/nodes/${encodeURIComponent(node.node)}/drain`, isUndo ? {} : { body: {} });
    say(isUndo ? `${node.node} may have cells again.` : owned === 0 ? `${node.node} takes no cells.` : `${node.node} gives its cells away.`);
  };
  if (isUndo) {
    return (
      <Confirm title={`Undo the drain of ${node.node}`} action="Undo the drain" losses={[]} run={run} close={close}>
        <p>{node.node} may have cells again. The balance gives it some within seconds.</p>
      </Confirm>
    );
  }
  return (
    <Confirm title={`Drain ${node.node}`} action="Drain" losses={owned > 0 ? [`in cells ${node.cells.join(", ")}: ${EPHEMERAL}`] : []} name={owned > 0 ? node.node : undefined} run={run} close={close}>
      <p>{owned > 0 ? `${node.node} gives ${owned} ${owned === 1 ? "cell" : "cells"} to other nodes, one after the other; clients of a cell wait while it moves. ` : ""}It takes no cells until the drain is undone, also after a restart, and goes on to answer requests for the cells of others.</p>
    </Confirm>
  );
}

const ANYWHERE = "";

function Move({ cell, nodes: all, close }: { cell: Cell; nodes: readonly Node[]; close: () => void }): JSX.Element {
  const { say } = useSession();
  const targets = all.filter((node) => node.state === "alive" && node.drain !== true);
  const [to, setTo] = useState(targets.find((node) => node.node !== cell.node)?.node ?? targets[0]?.node ?? ANYWHERE);
  const path = `/v0/cluster/cells/${cell.cell}/node`;
  const isMove = to !== ANYWHERE && to !== cell.node;
  const run = async (): Promise<void> => {
    if (to === ANYWHERE) await call("DELETE", path);
    else await call("PUT", path, { body: { node: to } });
    say(to === ANYWHERE ? `Cell ${cell.cell} may be at any node.` : isMove ? `Cell ${cell.cell} was ordered to ${to}.` : `Cell ${cell.cell} stays at ${to}.`);
  };
  return (
    <Confirm title={`Move cell ${cell.cell}`} action={to === ANYWHERE ? "Undo the order" : isMove ? "Move" : "Keep it there"} run={run} close={close}
      isReady={to !== ANYWHERE || cell.wanted !== undefined} losses={isMove ? [EPHEMERAL] : []} name={isMove ? `cell ${cell.cell}` : undefined}>
      <Facts facts={[["Node", cell.node ?? "none"], ["Ordered to", cell.wanted ?? "no node"]]} />
      <Field label="To">{(id) => (
        <select id={id} value={to} onChange={(event) => setTo(event.currentTarget.value)}>
          {targets.map((node) => <option key={node.node} value={node.node}>{node.node}{node.node === cell.node ? ", where it is" : ""}</option>)}
          {(cell.wanted !== undefined || targets.length === 0) && <option value={ANYWHERE}>any node: undo the order</option>}
        </select>
      )}</Field>
      <p>{to === ANYWHERE ? "The balance may move the cell again." : `${isMove ? "Clients of the cell wait while it moves. " : ""}The cell then stays at ${to}, and the balance leaves it there until the order is undone. If the node is lost, another one takes the cell until it is back.`}</p>
    </Confirm>
  );
}
