// The jobs of a queue by state, the history of one job, and what an operator does with many of them.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, call, get, read, reason, topicPath, type Schemas } from "../api.js";
import { useLoaded, useSession } from "../data.js";
import { ago, duration, stamp, whole } from "../format.js";
import { print } from "../json.js";
import { amend, link, type Route } from "../route.js";
import { isRunning, purge, redriveAll, useTasks } from "../tasks.js";
import { Badge, Button, Confirm, Dialog, Empty, Field, Of, Table, Tabs, type Column } from "../ui.js";
import { Contents, matches, type Stored } from "./records.js";
import type { Topic } from "./topic.js";

type Job = Schemas["Job"];
const PAGE = 100;
const ORIGIN = "$dead_letter_from";

export function Jobs({ topic, route, reload }: { topic: Topic; route: Route; reload: () => void }): JSX.Element {
  const queue = topic.queue;
  const [purging, setPurging] = useState(false);
  const [redriving, setRedriving] = useState(false);
  const isBusy = useTasks().some((task) => task.topic === topic.topic && isRunning(task));
  const { lacks, say } = useSession();
  const state = route.query.get("state") ?? "ready";
  const base = ["queues", topic.topic];
  const dead = topic.config.dead_letter;
  const tabs = [
    { id: "ready", name: `Ready ${whole(queue?.ready ?? 0)}` },
    { id: "leased", name: `Leased ${whole(queue?.in_flight ?? 0)}` },
    { id: "delayed", name: `Delayed ${whole(queue?.delayed ?? 0)}` },
    { id: "dead", name: "Dead" },
  ];
  const toggle = async (): Promise<void> => {
    try {
      const answer = await call<Schemas["PauseAnswer"]>("POST", topicPath(topic.topic, queue?.paused ? "/resume" : "/pause"));
      say(answer.paused ? "Paused: workers get no jobs." : "Resumed.");
      reload();
    } catch (failure) {
      say(reason(failure), "bad");
    }
  };
  const busy = isBusy ? "A task of this queue is running." : undefined;
  return (
    <>
      <div class="tools">
        <Button unless={lacks("admin")} onClick={() => void toggle()}>{queue?.paused ? "Resume" : "Pause"}</Button>
        <Button unless={lacks("admin") ?? busy ?? (dead ? undefined : "This queue has no dead letter topic.")} onClick={() => setRedriving(true)}>Redrive all</Button>
        <Button kind="danger" unless={lacks("delete") ?? busy} onClick={() => setPurging(true)}>Purge</Button>
        {(queue?.dead_pending ?? 0) > 0 && <Badge kind="bad">{queue?.dead_pending} jobs cannot be moved to {dead}</Badge>}
        {(queue?.lost ?? 0) > 0 && <Badge kind="warn">{whole(queue?.lost ?? 0)} jobs lost to a cap or ttl</Badge>}
      </div>
      <Tabs tabs={tabs} current={state} href={(id) => link(base, { tab: "jobs", state: id })} />
      {state === "dead" ? <Dead key={dead ?? ""} topic={topic} route={route} /> : <ByState key={state} topic={topic} state={state} />}
      {purging && <Purge topic={topic} close={() => { setPurging(false); reload(); }} />}
      {redriving && <Redrive topic={topic} close={() => { setRedriving(false); reload(); }} />}
    </>
  );
}

function ByState({ topic, state }: { topic: Topic; state: string }): JSX.Element {
  const [open, setOpen] = useState<Job>();
  const [cursors, setCursors] = useState<string[]>([]);
  const cursor = cursors.at(-1);
  // What a job contains never changes, so it is read once.
  const known = useRef(new Map<number, Stored | undefined>());
  const loaded = useLoaded(async (signal) => {
    const page = await get<Schemas["LeasesAnswer"]>(topicPath(topic.topic, "/leases"), { query: { state, page_size: PAGE, cursor }, signal });
    known.current = await contents(topic.topic, page.jobs, known.current, signal);
    return page;
  }, [topic.topic, state, cursor], 2_000);
  const stored = (job: Job): Stored | undefined => known.current.get(job.$seq);
  const columns: Column<Job>[] = [
    { name: "Job", cell: (job) => <button type="button" class="button quiet" onClick={() => setOpen(job)}>{whole(job.$seq)}</button>, isNumber: true, width: "72px" },
    { name: "Age", cell: (job) => { const record = stored(job); return record === undefined ? "–" : duration(Math.max(0, Date.now() - record.$ts)); }, width: "64px", isMinor: state !== "ready" },
    { name: "Deliveries", cell: (job) => job.deliveries, isNumber: true, width: "76px", isMinor: true },
    ...(state === "leased" ? [
      { name: "Worker", cell: (job: Job) => job.node ?? "" },
      { name: "Lease ends", cell: (job: Job) => inFuture(job.deadline), width: "84px" },
    ] : []),
    ...(state === "delayed" ? [{ name: "Ready", cell: (job: Job) => inFuture(job.ready_at), width: "84px" }] : []),
    { name: "Data", cell: (job) => { const record = stored(job); return <code>{record === undefined ? "–" : print(record.data, 0, 200)}</code>; }, width: "minmax(0, 4fr)", isMinor: state === "leased" },
  ];
  return (
    <>
      <Of loaded={loaded}>{(page) => (
        <>
          <Table label={`Jobs: ${state}`} columns={columns} rows={page.jobs} id={(job) => String(job.$seq)} empty={<Empty title={`No job is ${state}.`} />} />
          <div class="actions">
            <Button disabled={cursors.length === 0} onClick={() => setCursors(cursors.slice(0, -1))}>Previous</Button>
            <Button disabled={page.next_cursor === undefined || page.next_cursor === null} onClick={() => setCursors([...cursors, page.next_cursor ?? ""])}>Next</Button>
          </div>
        </>
      )}</Of>
      {open !== undefined && <JobDialog topic={topic} job={open} close={() => setOpen(undefined)} />}
    </>
  );
}

/** The most calls for the contents of one page of jobs; those of jobs that are far apart take more. */
const MOST_READS = 4;

/** What the jobs of a page contain, as far as a few reads of bounded size reach. Undefined: it was asked for in vain. */
async function contents(topic: string, jobs: readonly Job[], known: ReadonlyMap<number, Stored | undefined>, signal: AbortSignal): Promise<Map<number, Stored | undefined>> {
  const found = new Map(jobs.filter((job) => known.has(job.$seq)).map((job) => [job.$seq, known.get(job.$seq)]));
  for (let reads = 0; reads < MOST_READS; reads += 1) {
    const first = jobs.find((job) => !found.has(job.$seq))?.$seq;
    if (first === undefined) break;
    let through = first;
    try {
      const page = await read(topic, { from_seq: first - 1, limit: 2 * PAGE, max_batch_bytes: 262_144, include_tags: true, skip_corrupt: true }, 0, signal);
      for (const record of page.records) found.set(record.$seq, record);
      through = Math.max(first, page.records.at(-1)?.$seq ?? first);
    } catch {
      break; // the list itself says more than its contents
    }
    for (const job of jobs) if (job.$seq <= through && !found.has(job.$seq)) found.set(job.$seq, undefined);
  }
  return found;
}

function inFuture(ts: number | null | undefined): string {
  if (ts === null || ts === undefined) return "–";
  return ts > Date.now() ? `in ${duration(ts - Date.now())}` : ago(ts);
}

/** What happened to one job so far. */
function JobDialog({ topic, job, close }: { topic: Topic; job: Job; close: () => void }): JSX.Element {
  const loaded = useLoaded((signal) => get<Stored>(topicPath(topic.topic, `/records/${job.$seq}`), { query: { include_tags: true }, signal }), [job.$seq]);
  const max = topic.config.max_deliveries;
  return (
    <Dialog title={`Job ${whole(job.$seq)}`} close={close}>
      <div>
        <Of loaded={loaded} missing={<Empty title="This job is done or gone." />}>{(record) => (
          <>
            <h3>History</h3>
            <ol class="timeline">
              <li>{stamp(record.$ts)}: appended{record.$node === undefined ? "" : ` by ${record.$node}`}, {ago(record.$ts)}</li>
              <li>{job.deliveries === 0 ? "Not delivered yet" : `Delivered ${job.deliveries} ${job.deliveries === 1 ? "time" : "times"}${max > 0 ? ` of at most ${max}` : ""}`}</li>
              {job.state === "leased" && <li>Leased by {job.node}; the lease ends {inFuture(job.deadline)}</li>}
              {job.state === "delayed" && <li>Waits; ready {inFuture(job.ready_at)}</li>}
              {job.state === "ready" && <li>Ready: the next claim may take it</li>}
              {job.state === "dead" && <li>Is being moved to {topic.config.dead_letter}</li>}
            </ol>
            <Contents record={record} />
          </>
        )}</Of>
      </div>
    </Dialog>
  );
}

// -- dead letters ----------------------------------------------------------------------------------------------------

const SPANS: readonly [string, number][] = [["15 minutes", 900], ["hour", 3600], ["2 hours", 7200], ["day", 86_400], ["week", 604_800]];

function meta(record: Stored, name: string): string {
  const value = (record.meta as Record<string, unknown> | null | undefined)?.[name];
  return value === undefined || value === null ? "" : String(value);
}

function Dead({ topic, route }: { topic: Topic; route: Route }): JSX.Element {
  const source = topic.config.dead_letter;
  const { lacks, say } = useSession();
  const since = route.query.get("since") ?? "";
  const filter = route.query.get("filter") ?? "";
  const [from, setFrom] = useState(0);
  const [chosen, setChosen] = useState<ReadonlySet<number>>(new Set());
  const [open, setOpen] = useState<Stored>();
  const [asking, setAsking] = useState(false);
  useEffect(() => setFrom(0), [since]);
  // Only what is in sight is chosen.
  useEffect(() => setChosen(new Set()), [since, filter, from]);
  const loaded = useLoaded(async (signal) => {
    if (source === null || source === undefined) return null;
    const time = since === "" ? {} : { from_ts: Date.now() - Number(since) * 1000 };
    try {
      return await read(source, { from_seq: from, limit: 500, include_tags: true, skip_corrupt: true, ...time }, 0, signal);
    } catch (failure) {
      if (failure instanceof ApiError && failure.code === "topic_not_found") return null;
      throw failure;
    }
  }, [source, since, from], 5_000);
  if (source === null || source === undefined) return <Empty title="This queue has no dead letter topic."><p>Set dead_letter and max_deliveries on the tab “Config”. Until then jobs are delivered again for ever.</p></Empty>;
  const redrive = async (): Promise<void> => {
    const answer = await call<Schemas["RedriveAnswer"]>("POST", topicPath(topic.topic, "/redrive"), { body: { seqs: [...chosen] } });
    say(`Moved ${whole(answer.moved)} ${answer.moved === 1 ? "job" : "jobs"} back to ${topic.topic}.`);
    setChosen(new Set());
    loaded.reload();
  };
  const page = loaded.data;
  const all = (page?.records ?? []).filter((record) => meta(record, ORIGIN) === topic.topic);
  const found = all.filter((record) => matches(record, filter));
  const pick = (seq: number, isOn: boolean): void => {
    const next = new Set(chosen);
    if (isOn) next.add(seq);
    else next.delete(seq);
    setChosen(next);
  };
  const columns: Column<Stored>[] = [
    { name: "Choose", cell: (record) => <input type="checkbox" aria-label={`Choose dead letter ${record.$seq}`} checked={chosen.has(record.$seq)} onChange={(event) => pick(record.$seq, event.currentTarget.checked)} />, width: "56px" },
    { name: "Died", cell: (record) => <button type="button" class="button quiet" onClick={() => setOpen(record)}>{stamp(record.$ts)}</button>, by: (record) => record.$ts, width: "168px" },
    { name: "Job", cell: (record) => whole(Number(meta(record, "$dead_letter_src_seq"))), isNumber: true, isMinor: true },
    { name: "Deliveries", cell: (record) => meta(record, "$dead_letter_deliveries"), isNumber: true, isMinor: true },
    { name: "Reason", cell: (record) => meta(record, "$dead_letter_reason") || "–", by: (record) => meta(record, "$dead_letter_reason"), width: "minmax(0, 3fr)" },
    { name: "Data", cell: (record) => <code>{print(record.data, 0, 200)}</code>, width: "minmax(0, 3fr)", isMinor: true },
  ];
  return (
    <>
      <div class="tools">
        <Field label="Died">{(id) => (
          <select id={id} value={since} onChange={(event) => amend({ since: event.currentTarget.value })}>
            <option value="">at any time</option>
            {SPANS.map(([name, seconds]) => <option key={name} value={String(seconds)}>in the last {name}</option>)}
          </select>
        )}</Field>
        <Field label="Filter">{(id) => <input id={id} type="search" value={filter} placeholder="text in reason or data" onInput={(event) => amend({ filter: event.currentTarget.value })} />}</Field>
        <Button disabled={found.length === 0} onClick={() => setChosen(chosen.size === found.length ? new Set() : new Set(found.map((record) => record.$seq)))}>{chosen.size > 0 && chosen.size === found.length ? "Choose none" : "Choose all shown"}</Button>
        <Button kind="main" disabled={chosen.size === 0} unless={lacks("admin")} onClick={() => setAsking(true)}>Redrive {chosen.size > 0 ? whole(chosen.size) : ""}</Button>
      </div>
      <Of loaded={loaded}>{() => (
        <>
          <Table label="Dead letters" columns={columns} rows={found} id={(record) => String(record.$seq)} start={{ column: "Died", isDown: true }}
            empty={<Empty title={`No dead letter${all.length === 0 ? "s" : " matches"}${page?.caught_up === false ? " on this page" : ""}.`}><p>{page === null ? `${source} does not exist yet: it is created with the first dead job.` : <>They are records of <a href={link(["topics", source])}>{source}</a>.</>}</p></Empty>} />
          {page && (
            <div class="actions">
              <Button disabled={from === 0} onClick={() => setFrom(0)}>First page</Button>
              <Button disabled={page.caught_up} onClick={() => setFrom(page.next_from_seq)}>Next page</Button>
              {!page.caught_up && <small>The oldest come first; newer ones are on the next page.</small>}
            </div>
          )}
        </>
      )}</Of>
      {open !== undefined && <DeadDialog record={open} topic={topic} close={() => setOpen(undefined)} />}
      {asking && (
        <Confirm title="Redrive dead letters" action="Redrive" losses={[]} run={redrive} close={() => setAsking(false)}>
          <p>{whole(chosen.size)} {chosen.size === 1 ? "job goes" : "jobs go"} from {source} back to {topic.topic} and can be claimed at once. {chosen.size === 1 ? "Its" : "Their"} deliveries start at 0 again.</p>
        </Confirm>
      )}
    </>
  );
}

function DeadDialog({ record, topic, close }: { record: Stored; topic: Topic; close: () => void }): JSX.Element {
  return (
    <Dialog title={`Dead job ${whole(Number(meta(record, "$dead_letter_src_seq")))}`} close={close}>
      <div>
        <h3>History</h3>
        <ol class="timeline">
          <li>Appended to {topic.topic} as seq {whole(Number(meta(record, "$dead_letter_src_seq")))}</li>
          <li>Delivered {meta(record, "$dead_letter_deliveries")} {meta(record, "$dead_letter_deliveries") === "1" ? "time" : "times"} without an ack</li>
          <li>{stamp(record.$ts)}: moved to {topic.config.dead_letter}, {ago(record.$ts)}{meta(record, "$dead_letter_reason") && <>, because: <b>{meta(record, "$dead_letter_reason")}</b></>}</li>
        </ol>
        <Contents record={record} />
      </div>
    </Dialog>
  );
}

// -- tasks -----------------------------------------------------------------------------------------------------------

/** Asks before all dead letters go back. The task then goes on, whatever page is shown. */
function Redrive({ topic, close }: { topic: Topic; close: () => void }): JSX.Element {
  const loaded = useLoaded(async (signal) => {
    const body = { dry_run: true, max: 10_000 };
    const answer = await call<Schemas["RedriveAnswer"]>("POST", topicPath(topic.topic, "/redrive"), { body, signal });
    return answer.moved + answer.remaining;
  }, [topic.topic]);
  const total = loaded.data;
  return (
    <Dialog title={`Redrive all of ${topic.topic}`} close={close}>
      <form onSubmit={(event) => { event.preventDefault(); redriveAll(topic.topic, total ?? 0); close(); }}>
        <Of loaded={loaded}>{(count) => <p>{whole(count)} {count === 1 ? "job goes" : "jobs go"} from {topic.config.dead_letter} back to {topic.topic}. {count === 1 ? "Its" : "Their"} deliveries start at 0 again.</p>}</Of>
        <p class="actions">
          <Button onClick={close}>Cancel</Button>
          <Button type="submit" kind="main" disabled={total === undefined || total === 0}>Redrive all</Button>
        </p>
      </form>
    </Dialog>
  );
}

function Purge({ topic, close }: { topic: Topic; close: () => void }): JSX.Element {
  const [states, setStates] = useState({ ready: true, delayed: true });
  // What is confirmed is what was there when the question was asked.
  const [{ ready, delayed, head }] = useState({ ready: topic.queue?.ready ?? 0, delayed: topic.queue?.delayed ?? 0, head: topic.head_seq });
  const chosen = (["ready", "delayed"] as const).filter((state) => states[state]);
  const losses = [
    ...(states.ready ? [`${whole(ready)} ready jobs`] : []),
    ...(states.delayed ? [`${whole(delayed)} delayed jobs`] : []),
  ];
  const run = async (): Promise<void> => purge(topic.topic, chosen, head, (states.ready ? ready : 0) + (states.delayed ? delayed : 0));
  return (
    <Confirm title={`Purge ${topic.topic}`} action="Purge" losses={losses} name={topic.topic} run={run} close={close} isReady={chosen.length > 0}>
      {(["ready", "delayed"] as const).map((state) => (
        <label key={state} class="check"><input type="checkbox" checked={states[state]} onChange={(event) => setStates({ ...states, [state]: event.currentTarget.checked })} />{state} jobs</label>
      ))}
      <p><small>Leased jobs stay. Jobs that are appended after this stay.</small></p>
    </Confirm>
  );
}
