// How the broker is doing, at a glance.
import type { JSX } from "preact";
import { get, type Schemas } from "../api.js";
import { alerts, type Cluster } from "../alerts.js";
import { useLoaded, useSession, type Overview } from "../data.js";
import { bytes, duration, percent, short, whole } from "../format.js";
import { link } from "../route.js";
import { Empty, Head, Loading, NeedsKey, Table, Tile, type Column } from "../ui.js";

/** The cells and nodes; undefined: the broker is alone. */
export async function loadCluster(signal: AbortSignal): Promise<Cluster | undefined> {
  const health = await get<Schemas["HealthAnswer"] & Cluster>("/v0/health", { signal });
  return health.cells === undefined ? undefined : get<Cluster>("/v0/cluster", { signal });
}

/** The change of a counter per second. A counter that went back belongs to a new process. */
export function rate(now: Overview, before: Overview | undefined, name: "appended_records" | "read_records" | "acked_jobs" | "claimed_jobs" | "wal_bytes" | "http_requests" | "cpu_seconds"): number | undefined {
  if (before === undefined || now.ts <= before.ts) return undefined;
  return Math.max(0, (1000 * (now[name] - before[name])) / (now.ts - before.ts));
}

export function OverviewPage(): JSX.Element {
  const { live } = useSession();
  const history = useLoaded((signal) => get<Schemas["HistoryAnswer"]>("/v0/overview/history", { signal }), [], 10_000);
  const cluster = useLoaded(loadCluster, [], 5_000);
  const now = live.overview;
  const found = alerts(now, cluster.data);
  const series = history.data?.series ?? {};
  const per = (name: Parameters<typeof rate>[2]): string => {
    const value = now === undefined ? undefined : rate(now, live.before, name);
    return value === undefined ? "–" : `${short(value)}/s`;
  };
  return (
    <>
      <Head title="Overview" />
      <ul class="alerts" aria-label="Alerts">
        {found.map((alert) => <li key={alert.text} class={alert.kind}>{alert.href === undefined ? alert.text : <a href={alert.href}>{alert.text}</a>}</li>)}
        {live.state === "lost" && <li class="bad">The broker does not answer: what follows is old.</li>}
        {found.length === 0 && now !== undefined && live.state === "live" && <li class="none">Nothing needs attention.</li>}
      </ul>
      {now === undefined ? (live.state === "unauthorized" ? <NeedsKey /> : live.state === "forbidden" ? <Empty title="This key may not see the figures of the broker."><p>It lacks the scope read.</p></Empty> : <Loading />) : (
        <>
          <div class="tiles">
            <Tile title="Records appended" value={per("appended_records")} note={`${whole(now.appended_records)} since the start`} values={series["appended_per_s"]} href={link(["topics"])} />
            <Tile title="Records read" value={per("read_records")} note={`${whole(now.read_records)} since the start`} values={series["read_per_s"]} />
            <Tile title="Jobs acked" value={per("acked_jobs")} note={`${per("claimed_jobs")} claimed`} values={series["acked_per_s"]} href={link(["queues"])} />
            <Tile title="Ready jobs" value={short(now.ready_jobs)} note={`${whole(now.leased_jobs)} leased, ${whole(now.delayed_jobs)} delayed`} values={series["ready_jobs"]} href={link(["queues"])} />
            <Tile title="Oldest ready job" value={now.ready_jobs > 0 ? duration(now.oldest_job_ms.value) : "–"} note={now.oldest_job_ms.topic ?? "No job waits."} href={now.oldest_job_ms.topic ? link(["queues", now.oldest_job_ms.topic]) : undefined}
              values={series["oldest_job_ms"]} format={duration} kind={now.oldest_job_ms.value > 900_000 ? "warn" : undefined} />
            <Tile title="Highest consumer lag" value={short(now.consumer_lag.value)} note={now.consumer_lag.consumer ? `${now.consumer_lag.consumer} on ${now.consumer_lag.topic}` : `${whole(now.consumers)} consumers`} values={series["consumer_lag"]} href={link(["consumers"])} />
            <Tile title="Highest router lag" value={short(now.router_lag.value)} note={now.router_lag.router ?? `${whole(now.routers)} routers`} values={series["router_lag"]} href={link(["routers"])} kind={now.routers_blocked > 0 ? "bad" : undefined} />
            <Tile title="Pressure" value={percent(now.pressure)} note={STEPS[Math.min(now.pressure_step, 4)]} values={series["pressure"]} format={percent} full={1} kind={now.pressure_step >= 4 ? "bad" : now.pressure_step > 0 ? "warn" : undefined} />
            <Tile title="Disk free" value={bytes(now.disk_free_bytes)} note={`of ${bytes(now.disk_bytes)}; ${bytes(now.live_bytes)} of live records`} values={series["disk_free_bytes"]} format={bytes} />
            <Tile title="Memory" value={bytes(now.resident_bytes)} note={`${whole(now.connections)} connections`} values={series["resident_bytes"]} format={bytes} />
            <Tile title="Processor" value={cpu(now, live.before)} note={`event loop late by ${duration(now.loop_lag_ms)}`} values={series["cpu_share"]} format={percent} />
            <Tile title="Requests" value={per("http_requests")} note={`log: ${bytes(rate(now, live.before, "wal_bytes"))}/s`} values={series["requests_per_s"]} />
          </div>
          {now.busiest.length > 0 && <h2>Busiest topics</h2>}
          {now.busiest.length > 0 && <Table label="Busiest topics" columns={BUSIEST} rows={now.busiest} id={(busy) => busy.topic} />}
          <p><small>Lines show the last hour{history.data === undefined ? "" : `: ${Math.round(((history.data.series["pressure"]?.length ?? 0) * history.data.interval_ms) / 60_000)} minutes of it are known since the start of the broker`}. {now.partial ? "There are more topics than the figures of jobs and lag look at." : ""}</small></p>
        </>
      )}
    </>
  );
}

const BUSIEST: Column<Overview["busiest"][number]>[] = [
  { name: "Topic", cell: (busy) => <a href={link(["topics", busy.topic])}>{busy.topic}</a>, width: "minmax(0, 4fr)" },
  { name: "Appended", cell: (busy) => `${short(busy.appended_per_s)}/s`, isNumber: true },
];
const STEPS = ["normal", "defers work", "defers more work", "defers all work that can wait", "refuses writes"];

function cpu(now: Overview, before: Overview | undefined): string {
  const value = rate(now, before, "cpu_seconds");
  return value === undefined ? "–" : percent(value);
}
