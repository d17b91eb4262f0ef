// The processes behind this address: one broker, a set of cells, or the nodes of a cluster.
import type { JSX } from "preact";
import type { Cell, Cluster } from "../alerts.js";
import { useLoaded, useSession } from "../data.js";
import { bytes, duration, percent, whole } from "../format.js";
import { Badge, Facts, Head, Of, Table, type Column } from "../ui.js";
import { loadCluster } from "./overview.js";

type Node = NonNullable<Cluster["nodes"]>[number];

const kindOf = (state: string): "good" | "warn" | "bad" => (state === "alive" || state === "ready" ? "good" : state === "draining" || state === "drained" || state === "starting" ? "warn" : "bad");

const NODES: Column<Node>[] = [
  { name: "Node", cell: (node) => node.node, by: (node) => node.node, width: "minmax(0, 2fr)" },
  { name: "State", cell: (node) => <Badge kind={kindOf(node.state)}>{node.state === "silent" ? "gone" : node.state}</Badge>, by: (node) => node.state, width: "90px" },
  { name: "Sign of life", cell: (node) => `${duration(node.age_ms)} ago`, by: (node) => node.age_ms },
  { name: "Cells", cell: (node) => (node.cells.length > 0 ? node.cells.join(", ") : "none") },
  { name: "Address", cell: (node) => node.http ?? "–", isMinor: true },
  { name: "Version", cell: (node) => node.version ?? "–", isMinor: true, width: "80px" },
];
const CELLS: Column<Cell>[] = [
  { name: "Cell", cell: (cell) => cell.cell, by: (cell) => cell.cell, width: "60px" },
  { name: "State", cell: (cell) => <Badge kind={kindOf(cell.state)}>{cell.state}</Badge>, by: (cell) => cell.state, width: "110px" },
  { name: "Node", cell: (cell) => cell.node ?? "this machine", by: (cell) => cell.node ?? "" },
  { name: "Moving", cell: moving, width: "minmax(0, 2fr)" },
  { name: "Moves", cell: (cell) => cell.generation ?? "–", by: (cell) => cell.generation ?? 0, isNumber: true },
  { name: "Restarts", cell: (cell) => cell.restarts, by: (cell) => cell.restarts, isNumber: true },
  { name: "Address", cell: (cell) => cell.http ?? "–", isMinor: true },
];

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
  const { live, health } = useSession();
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
            {cluster.nodes !== undefined && <><h2>Nodes</h2><Table label="Nodes" columns={NODES} rows={cluster.nodes} id={(node) => node.node} /></>}
            <h2>Cells</h2>
            <Table label="Cells" columns={CELLS} rows={cluster.cells ?? []} id={(cell) => String(cell.cell)} />
            <p><small>A cell has one part of the topics. “Moving” shows orders, and the node that gets ready to own the cell; “Moves” counts its owners so far.</small></p>
          </>
        ))}</Of>
    </>
  );
}
