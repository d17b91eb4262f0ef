// Records of a topic: read from a seq or a time, or watch them arrive, with a filter.
import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { client, get, read, topicPath, type Schemas } from "../api.js";
import { useLoaded } from "../data.js";
import { bytes, stamp, whole } from "../format.js";
import { print } from "../json.js";
import { amend, type Route } from "../route.js";
import { Badge, Button, Dialog, Empty, Facts, Failed, Field, Of } from "../ui.js";
import type { Topic } from "./topic.js";

export type Stored = Schemas["Record"];
type Shown = { record: Stored; partition: number } | { gap: string };

const PAGE = 100;
/** The most records that a live view keeps. */
const MOST_LIVE = 500;
const PREVIEW = 300;
/** The most characters of a record that are shown at once. */
const WHOLE = 100_000;

export function Records({ topic, route }: { topic: Topic; route: Route }): JSX.Element {
  const isLive = route.query.get("live") === "1";
  const partition = Number(route.query.get("partition") ?? 0) || 0;
  const count = topic.partitions?.length ?? 1;
  return (
    <>
      <div class="tools">
        <Button kind={isLive ? "main" : undefined} aria-pressed={isLive} onClick={() => amend({ live: isLive ? "" : 1 })}>{isLive ? "Stop watching" : "Watch live"}</Button>
        {count > 1 && (
          <Field label="Partition">{(id) => (
            <select id={id} value={String(partition)} onChange={(event) => amend({ partition: event.currentTarget.value })}>
              {Array.from({ length: count }, (_, number) => <option key={number} value={String(number)}>{number}</option>)}
            </select>
          )}</Field>
        )}
        {!isLive && <Where route={route} />}
        <Field label="Filter">{(id) => <input id={id} type="search" value={route.query.get("filter") ?? ""} placeholder="text in data, tag, node or meta" onInput={(event) => amend({ filter: event.currentTarget.value })} />}</Field>
      </div>
      {isLive ? <LiveRecords key={partition} topic={topic} partition={partition} filter={route.query.get("filter") ?? ""} /> : <Page topic={topic} route={route} partition={partition} />}
    </>
  );
}

function Where({ route }: { route: Route }): JSX.Element {
  const by = route.query.get("by") ?? "end";
  return (
    <>
      <Field label="Read">{(id) => (
        <select id={id} value={by} onChange={(event) => amend({ by: event.currentTarget.value, seq: "", time: "" })}>
          <option value="end">the newest records</option>
          <option value="start">from the oldest record</option>
          <option value="seq">from a seq</option>
          <option value="time">from a time</option>
        </select>
      )}</Field>
      {by === "seq" && <Field label="Seq">{(id) => <input id={id} type="number" min="1" value={route.query.get("seq") ?? "1"} onChange={(event) => amend({ seq: event.currentTarget.value })} />}</Field>}
      {by === "time" && <Field label="Time">{(id) => <input id={id} type="datetime-local" step="1" value={route.query.get("time") ?? ""} onChange={(event) => amend({ time: event.currentTarget.value })} />}</Field>}
    </>
  );
}

function Page({ topic, route, partition }: { topic: Topic; route: Route; partition: number }): JSX.Element {
  const by = route.query.get("by") ?? "end";
  const seq = Number(route.query.get("seq") ?? 1) || 1;
  const time = route.query.get("time") ?? "";
  const [after, setAfter] = useState<number>();
  useEffect(() => setAfter(undefined), [by, seq, time, partition]);
  const head = topic.partitions?.[partition]?.head_seq ?? topic.head_seq;
  const [start, setStart] = useState(head);
  useEffect(() => setStart(head), [by, partition]);
  const loaded = useLoaded(async (signal) => {
    const body: Record<string, unknown> = { limit: PAGE, include_tags: true, skip_corrupt: true };
    if (after !== undefined) body["from_seq"] = after;
    else if (by === "seq") body["from_seq"] = Math.max(0, seq - 1);
    else if (by === "time" && time !== "") body["from_ts"] = new Date(time).getTime();
    else if (by === "end") body["from_seq"] = Math.max(0, start - PAGE);
    return read(topic.topic, body, partition, signal);
  }, [topic.topic, topic.epoch, partition, by, seq, time, after, start]);
  const filter = route.query.get("filter") ?? "";
  const newest = by === "end" && after === undefined;
  return (
    <Of loaded={loaded}>{(page) => {
      const gap = page.tombstone ? [{ gap: `Seqs ${whole(page.tombstone.gap_from)} to ${whole(page.tombstone.gap_to)} are gone: ${page.tombstone.reason}.` }] : [];
      const corrupt = (page.corrupt_seqs ?? []).map((each) => ({ gap: `Record ${whole(each)} failed its checksum.` }));
      const records = page.records.map((record) => ({ record, partition }));
      const shown = [...gap, ...corrupt, ...(newest ? records.reverse() : records)];
      return (
        <>
          <List topic={topic.topic} shown={shown} filter={filter} empty={topic.count === 0
            ? <Empty title="This topic has no records."><p>Append one on the tab “Produce”.</p></Empty>
            : <Empty title="No records here."><p>Read from another seq or time.</p></Empty>} />
          <div class="actions">
            <Button onClick={() => { if (newest) setStart(head); loaded.reload(); }}>Refresh</Button>
            {newest
              ? <Button disabled={start - PAGE <= topic.earliest_seq - 1} onClick={() => setStart(Math.max(PAGE, start - PAGE))}>Older</Button>
              : <Button disabled={page.caught_up} onClick={() => setAfter(page.next_from_seq)}>Next</Button>}
            <small>{newest ? `up to seq ${whole(Math.min(start, head))}` : page.caught_up ? "the end of the topic" : `${whole(page.lag)} more`}</small>
          </div>
        </>
      );
    }}</Of>
  );
}

/** Records as they arrive. They are shown at most four times a second, however many there are. */
function LiveRecords({ topic, partition, filter }: { topic: Topic; partition: number; filter: string }): JSX.Element {
  const [shown, setShown] = useState<Shown[]>([]);
  const [seen, setSeen] = useState(0);
  const [error, setError] = useState<unknown>();
  const [again, setAgain] = useState(0);
  const [paused, setPaused] = useState(false);
  const isPaused = useRef(false);
  isPaused.current = paused;
  const wanted = useRef(filter);
  wanted.current = filter;
  useEffect(() => {
    const abort = new AbortController();
    let waiting: Shown[] = [];
    let count = 0;
    const timer = setInterval(() => {
      if (count === 0 && waiting.length === 0) return;
      const [added, more] = [waiting, count];
      waiting = [];
      count = 0;
      setSeen((before) => before + more);
      if (!isPaused.current) setShown((before) => [...added.reverse(), ...before].slice(0, MOST_LIVE));
    }, 250);
    const run = async (): Promise<void> => {
      try {
        const start = { tail: true, ...(partition > 0 ? { partition } : {}) };
        for await (const event of client.watch({ [topic.topic]: start }, { include_tags: true, signal: abort.signal })) {
          if (event.event === "record") {
            count += event.data.records.length;
            const found = event.data.records.filter((record) => matches(record, wanted.current));
            waiting.push(...found.map((record) => ({ record, partition })));
          } else if (event.event === "tombstone") {
            waiting.push({ gap: `Seqs ${whole(event.data.gap_from)} to ${whole(event.data.gap_to)} are gone: ${event.data.reason}.` });
          } else if (event.event === "topic-deleted") {
            waiting.push({ gap: "The topic was deleted." });
          }
          if (waiting.length > MOST_LIVE) waiting = waiting.slice(-MOST_LIVE);
        }
      } catch (failure) {
        if (!abort.signal.aborted) setError(failure);
      }
    };
    const left = (): void => abort.abort();
    window.addEventListener("pagehide", left);
    setError(undefined);
    void run();
    return () => {
      abort.abort();
      clearInterval(timer);
      window.removeEventListener("pagehide", left);
    };
  }, [topic.topic, partition, again]);
  return (
    <>
      {error !== undefined && <Failed error={error} again={() => setAgain((count) => count + 1)} isStale />}
      <div class="tools">
        <Button aria-pressed={paused} onClick={() => setPaused(!paused)}>{paused ? "Continue" : "Pause"}</Button>
        <Button onClick={() => setShown([])}>Clear</Button>
        <small role="status">{whole(seen)} records arrived; the newest {MOST_LIVE} that match stay here.</small>
      </div>
      <List topic={topic.topic} shown={shown} filter={filter} empty={<Empty title="Waiting for records."><p>What is appended from now on appears here.</p></Empty>} />
    </>
  );
}

export function matches(record: Stored, filter: string): boolean {
  if (filter === "") return true;
  const wanted = filter.toLowerCase();
  return [record.$tag, record.$node, print(record.data, 0, WHOLE), record.meta === undefined ? "" : print(record.meta)]
    .some((text) => text?.toLowerCase().includes(wanted));
}

function List({ topic, shown, filter, empty }: { topic: string; shown: Shown[]; filter: string; empty: JSX.Element }): JSX.Element {
  const [open, setOpen] = useState<{ record: Stored; partition: number }>();
  const found = useMemo(() => shown.filter((each) => "gap" in each || matches(each.record, filter)), [shown, filter]);
  return (
    <>
      {found.length === 0 && (shown.length === 0 ? empty : <Empty title={`None of these ${shown.length} records has “${filter}”.`} />)}
      {found.length > 0 && (
        <div class="records" role="list" aria-label="Records">
          {found.map((each) => ("gap" in each
            ? <div class="gap" role="listitem" key={each.gap}>{each.gap}</div>
            : <div role="listitem" key={each.record.$seq}><Row record={each.record} open={() => setOpen(each)} /></div>))}
        </div>
      )}
      {open !== undefined && <RecordDialog topic={topic} partition={open.partition} seq={open.record.$seq} close={() => setOpen(undefined)} />}
    </>
  );
}

function Row({ record, open }: { record: Stored; open: () => void }): JSX.Element {
  return (
    <button type="button" class="record" onClick={open}>
      <span class="seq">{whole(record.$seq)}</span>
      <time>{stamp(record.$ts)}</time>
      <code>{record.$tag !== undefined && <><Badge kind="info">{record.$tag}</Badge> </>}{print(record.data, 0, PREVIEW)}</code>
    </button>
  );
}

export function RecordDialog({ topic, partition, seq, close }: { topic: string; partition: number; seq: number; close: () => void }): JSX.Element {
  const query = { include_tags: true, ...(partition > 0 ? { partition } : {}) };
  const loaded = useLoaded((signal) => get<Stored>(topicPath(topic, `/records/${seq}`), { query, signal }), [topic, partition, seq]);
  return (
    <Dialog title={`Record ${whole(seq)}`} close={close}>
      <div>
        <Of loaded={loaded} missing={<Empty title="This record is gone." />}>{(record) => <Contents record={record} />}</Of>
      </div>
    </Dialog>
  );
}

export function Contents({ record }: { record: Stored }): JSX.Element {
  const [most, setMost] = useState(WHOLE);
  const text = print(record.data, 2, most);
  return (
    <>
      <Facts facts={[
        ["Seq", whole(record.$seq)],
        ["Time", stamp(record.$ts)],
        ...(record.$tag === undefined ? [] : [["Tag", record.$tag] as [string, string]]),
        ...(record.$node === undefined ? [] : [["Node", record.$node] as [string, string]]),
      ]} />
      <h3>Data</h3>
      <pre tabIndex={0}>{text}</pre>
      {text.length > most && <p class="actions"><small>The first {bytes(most)}.</small> <Button onClick={() => setMost(Infinity)}>Show all</Button></p>}
      {record.meta !== undefined && <><h3>Meta</h3><pre tabIndex={0}>{print(record.meta, 2)}</pre></>}
    </>
  );
}
