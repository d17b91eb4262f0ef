// Where the records of a topic are: segments by tier, the log behind them, and what is gone.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { get, topicPath, type Schemas } from "../api.js";
import { useLoaded } from "../data.js";
import { bytes, stamp, whole } from "../format.js";
import { Badge, Empty, Field, Of, Table, type Column } from "../ui.js";
import type { Topic } from "./topic.js";

type Answer = Schemas["SegmentsAnswer"];
type Segment = Answer["segments"][number];

const COLUMNS: Column<Segment>[] = [
  { name: "First seq", cell: (each) => whole(each.first_seq), by: (each) => each.first_seq, isNumber: true },
  { name: "Records", cell: (each) => whole(each.records), by: (each) => each.records, isNumber: true, isMinor: true },
  { name: "Live", cell: (each) => whole(each.live), by: (each) => each.live, isNumber: true },
  { name: "Size", cell: (each) => bytes(each.bytes), by: (each) => each.bytes, isNumber: true },
  { name: "Tier", cell: (each) => <Badge kind={each.tier === "cold" ? undefined : "info"}>{each.tier}{each.sealed ? "" : ", open"}</Badge>, by: (each) => each.tier, width: "100px" },
  { name: "From", cell: (each) => stamp(each.first_ts), by: (each) => each.first_ts, isMinor: true },
  { name: "To", cell: (each) => stamp(each.last_ts), by: (each) => each.last_ts, isMinor: true },
];

export function StorageTab({ topic }: { topic: Topic }): JSX.Element {
  const [partition, setPartition] = useState(0);
  const query = partition > 0 ? { partition } : {};
  const loaded = useLoaded((signal) => get<Answer>(topicPath(topic.topic, "/segments"), { query, signal }), [topic.topic, partition], 5_000);
  const count = topic.partitions?.length ?? 1;
  return (
    <>
      {count > 1 && <div class="tools"><Field label="Partition">{(id) => (
        <select id={id} value={String(partition)} onChange={(event) => setPartition(Number(event.currentTarget.value))}>{Array.from({ length: count }, (_, at) => <option key={at} value={String(at)}>{at}</option>)}</select>
      )}</Field></div>}
      <Of loaded={loaded}>{(answer) => (
        <>
          <Picture answer={answer} topic={topic} />
          <Table label="Segments" columns={COLUMNS} rows={answer.segments} id={(each) => String(each.first_seq)} start={{ column: "First seq", isDown: true }}
            empty={<Empty title="No segments yet."><p>The records are in the log. They are copied to segments later.</p></Empty>} />
        </>
      )}</Of>
    </>
  );
}

/** All seqs of the topic on one strip, from 1 to the head. */
function Picture({ answer, topic }: { answer: Answer; topic: Topic }): JSX.Element {
  const head = Math.max(1, answer.head_seq);
  const gone = Math.max(0, answer.earliest_seq - 1);
  const parts: { kind: string; count: number; text: string }[] = [];
  if (gone > 0) parts.push({ kind: "gone", count: gone, text: `${whole(gone)} seqs deleted or expired` });
  for (const tier of ["cold", "hot"]) {
    const found = answer.segments.filter((each) => (each.tier === "cold") === (tier === "cold"));
    const count = found.reduce((sum, each) => sum + Math.max(0, each.end_seq - Math.max(each.first_seq, answer.earliest_seq)), 0);
    if (count > 0) parts.push({ kind: tier, count, text: `${whole(count)} seqs in ${found.length} ${found.length === 1 ? "segment" : "segments"} ${tier === "cold" ? "of the cold tier" : "on this disk"}` });
  }
  const tail = Math.max(0, answer.tail.end_seq - answer.tail.first_seq);
  if (tail > 0) parts.push({ kind: "tail", count: tail, text: `${whole(tail)} seqs in the log` });
  const limits = [
    topic.config.ttl_ms > 0 ? `records expire after ${whole(topic.config.ttl_ms / 1000)} s` : "",
    topic.config.cap_records > 0 ? `${whole(topic.count)} of at most ${whole(topic.config.cap_records)} records` : "",
    topic.config.cap_bytes > 0 ? `${bytes(topic.bytes)} of at most ${bytes(topic.config.cap_bytes)}` : "",
    topic.config.retention === "consumed" ? "records go once all consumers have read them" : "",
  ].filter(Boolean);
  return (
    <section class="card">
      <h2>Retention</h2>
      <div class="bars">
        <div class="strip" role="img" aria-label={parts.map((part) => part.text).join("; ") || "no seqs yet"}>
          {parts.map((part) => <div key={part.kind} class={part.kind} title={part.text} style={{ width: `${(100 * part.count) / head}%` }} />)}
        </div>
        <div class="legend">{parts.map((part) => <span key={part.kind}><i class={part.kind} />{part.text}</span>)}</div>
      </div>
      <p>{limits.length > 0 ? `Limits: ${limits.join("; ")}.` : "No limits: records stay until they are deleted."}</p>
      {answer.loss.length > 0 && <ul class="alerts">{answer.loss.map((loss) => <li key={loss.from} class="bad">Seqs {whole(loss.from)} to {whole(loss.to)} were lost: {loss.cause}.</li>)}</ul>}
    </section>
  );
}
