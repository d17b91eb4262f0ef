// All queues, with what waits in each.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { pages, type Schemas } from "../api.js";
import { useLoaded, useSession } from "../data.js";
import { duration, whole } from "../format.js";
import { link } from "../route.js";
import { Badge, Button, Empty, Head, Of, Table, type Column } from "../ui.js";
import { NewTopic } from "./topics.js";

type Entry = Schemas["TopicEntry"];

const of = (pick: (queue: Schemas["QueueEntry"]) => number) => (entry: Entry): number => (entry.queue ? pick(entry.queue) : 0);
const ready = of((queue) => queue.ready);
const leased = of((queue) => queue.in_flight);
const delayed = of((queue) => queue.delayed);
const oldest = of((queue) => queue.oldest_ready_age_ms ?? 0);

const COLUMNS: Column<Entry>[] = [
  { name: "Queue", cell: (entry) => <a href={link(["queues", entry.topic])}>{entry.topic}</a>, by: (entry) => entry.topic, width: "minmax(0, 4fr)" },
  { name: "State", cell: (entry) => (entry.queue?.paused ? <Badge kind="warn">paused</Badge> : <Badge kind="good">active</Badge>), by: (entry) => Number(entry.queue?.paused ?? false), width: "70px" },
  { name: "Ready", cell: (entry) => <a href={link(["queues", entry.topic], { state: "ready" })}>{whole(ready(entry))}</a>, by: ready, isNumber: true },
  { name: "Leased", cell: (entry) => <a href={link(["queues", entry.topic], { state: "leased" })}>{whole(leased(entry))}</a>, by: leased, isNumber: true, isMinor: true },
  { name: "Delayed", cell: (entry) => <a href={link(["queues", entry.topic], { state: "delayed" })}>{whole(delayed(entry))}</a>, by: delayed, isNumber: true, isMinor: true },
  { name: "Oldest", cell: (entry) => (ready(entry) > 0 ? duration(oldest(entry)) : "–"), by: oldest, isNumber: true },
];

export function QueuesPage(): JSX.Element {
  const { may } = useSession();
  const [making, setMaking] = useState(false);
  const loaded = useLoaded((signal) => pages<Entry>("/v0/topics", "topics", 20_000, {}, signal), [], 5_000);
  return (
    <>
      <Head title="Queues"><Button kind="main" disabled={!may("admin")} title={may("admin") ? undefined : "This key lacks the scope admin."} onClick={() => setMaking(true)}>New queue</Button></Head>
      <Of loaded={loaded}>{([topics]) => (
        <Table label="Queues" columns={COLUMNS} rows={topics.filter((entry) => entry.type === "queue")} id={(entry) => entry.topic} start={{ column: "Oldest", isDown: true }}
          empty={<Empty title="There are no queues."><p>A queue is a topic whose records are jobs. Make one with “New queue”.</p></Empty>} />
      )}</Of>
      {making && <NewTopic type="queue" close={() => setMaking(false)} />}
    </>
  );
}
