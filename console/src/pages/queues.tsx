// All queues, with what waits in each.
import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { pages, type Schemas } from "../api.js";
import { useLoaded, useSession } from "../data.js";
import { duration, whole } from "../format.js";
import { amend, link, type Route } from "../route.js";
import { Badge, Button, Empty, Field, Head, Of, Table, type Column } from "../ui.js";
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
  { name: "Dead", cell: (entry) => <a href={link(["queues", entry.topic], { state: "dead" })} aria-label={`show dead letters of ${entry.topic}`}>show</a>, width: "52px" },
  { name: "Oldest", cell: (entry) => (ready(entry) > 0 ? duration(oldest(entry)) : "–"), by: oldest, isNumber: true },
];

export function QueuesPage({ route }: { route: Route }): JSX.Element {
  const { lacks } = useSession();
  const filter = route.query.get("q") ?? "";
  const [making, setMaking] = useState(false);
  const loaded = useLoaded((signal) => pages<Entry>("/v0/topics", "topics", 20_000, {}, signal), [], 5_000);
  const queues = useMemo(() => (loaded.data?.[0] ?? []).filter((entry) => entry.type === "queue"), [loaded.data]);
  const shown = useMemo(() => queues.filter((entry) => entry.topic.toLowerCase().includes(filter.toLowerCase())), [queues, filter]);
  return (
    <>
      <Head title="Queues"><Button kind="main" unless={lacks("admin")} onClick={() => setMaking(true)}>New queue</Button></Head>
      <div class="tools">
        <Field label="Filter">{(id) => <input id={id} type="search" value={filter} placeholder="part of a name" onInput={(event) => amend({ q: event.currentTarget.value })} />}</Field>
        <small>{loaded.data === undefined ? "" : `${whole(shown.length)} of ${whole(queues.length)}${loaded.data[1] ? " and more" : ""} queues`}</small>
      </div>
      <Of loaded={loaded}>{() => (
        <Table label="Queues" columns={COLUMNS} rows={shown} id={(entry) => entry.topic} start={{ column: "Oldest", isDown: true }} empty={queues.length === 0
          ? <Empty title="There are no queues."><p>A queue is a topic whose records are jobs. Make one with “New queue”.</p></Empty>
          : <Empty title={`No queue has “${filter}” in its name.`} />} />
      )}</Of>
      {making && <NewTopic type="queue" close={() => setMaking(false)} />}
    </>
  );
}
