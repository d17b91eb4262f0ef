// What an operator should look at, from the figures of the broker and the state of its cells.
import type { Overview } from "./data.js";
import { bytes, duration, percent, whole } from "./format.js";
import { link } from "./route.js";

export interface Alert {
  kind: "bad" | "warn";
  text: string;
  href?: string;
}

export interface Cluster {
  node?: string;
  nodes?: { node: string; state: string; age_ms: number; cells: number[]; http?: string; version?: string; drain?: boolean }[];
  cells?: Cell[];
}

export interface Cell {
  cell: number;
  state: string;
  restarts: number;
  node?: string;
  generation?: number;
  http?: string;
  /** The process that gets ready to own it. */
  takeover?: { node: string; state: string; since_ms: number; progress: number };
  /** The node that it was ordered to. */
  wanted?: string;
}

const OLD_JOB_MS = 15 * 60_000;
const LITTLE_DISK = 0.1;
const HIGH_LAG = 100_000;

export function alerts(now: Overview | undefined, cluster: Cluster | undefined): Alert[] {
  const found: Alert[] = [];
  const add = (kind: Alert["kind"], text: string, href?: string): void => void found.push(href === undefined ? { kind, text } : { kind, text, href });
  for (const node of cluster?.nodes ?? []) {
    if (node.state === "silent") add("bad", `Node ${node.node} is gone: the last sign of life was ${duration(node.age_ms)} ago.`, link(["cluster"]));
    else if (node.state === "draining") add("warn", `Node ${node.node} is draining: it gives ${node.cells.length} cells away.`, link(["cluster"]));
  }
  for (const cell of cluster?.cells ?? []) {
    if (cell.state === "ready") continue;
    add("bad", `Cell ${cell.cell} is ${cell.state}${cell.takeover === undefined ? "" : `: ${cell.takeover.node} takes it over`}.`, link(["cluster"]));
  }
  if (now === undefined) return found;
  if (!now.ready) add("bad", "The broker is not ready.", link(["cluster"]));
  if (now.failed_shards > 0) add("bad", `${now.failed_shards} of ${now.shards} shards of the log stopped after an error of the disk. Their writes are refused until a restart.`);
  if (now.full_shards > 0) add("bad", "The disk is full: writes are refused.");
  const free = now.disk_free_bytes;
  if (now.full_shards === 0 && free !== null && now.disk_bytes && free / now.disk_bytes < LITTLE_DISK) {
    add("warn", `The disk has ${bytes(free)} left, ${percent(free / now.disk_bytes)}.`);
  }
  if (now.pressure_step >= 4) add("bad", "Writes are refused: the broker is overloaded.");
  else if (now.pressure_step > 0) add("warn", "The broker is under pressure and defers work.");
  if (now.corrupt_reads > 0) add("bad", `${whole(now.corrupt_reads)} records failed their checksum since the start.`);
  if (now.routers_blocked > 0) add("bad", `${now.routers_blocked} routers are blocked by their destination.`, link(["routers"]));
  if (now.dead_pending_jobs > 0) add("warn", `${whole(now.dead_pending_jobs)} jobs cannot be moved to their dead letter topic.`, link(["queues"]));
  if (now.lost_jobs > 0) add("warn", `${whole(now.lost_jobs)} jobs were deleted by a cap or ttl before an ack.`, link(["queues"]));
  const oldest = now.oldest_job_ms;
  if (oldest.value > OLD_JOB_MS) add("warn", `A job has been ready for ${duration(oldest.value)}.`, oldest.topic ? link(["queues", oldest.topic]) : link(["queues"]));
  const lag = now.consumer_lag;
  if (lag.value > HIGH_LAG) add("warn", `A consumer is ${whole(lag.value)} records behind.`, link(["consumers"]));
  return found;
}
