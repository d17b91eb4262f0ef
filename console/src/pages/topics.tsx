// All topics, with search; and the form for a new one.
import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { call, pages, reason, topicPath, type Schemas } from "../api.js";
import { useLoaded, useSession } from "../data.js";
import { bytes, whole } from "../format.js";
import { amend, go, link, type Route } from "../route.js";
import { Badge, Button, Dialog, Empty, Field, Head, Of, Table, type Column } from "../ui.js";

type Entry = Schemas["TopicEntry"];
/** The most topics that are listed; search by prefix finds the others. */
const MOST = 20_000;

const COLUMNS: Column<Entry>[] = [
  { name: "Topic", cell: (topic) => <a href={link([topic.type === "queue" ? "queues" : "topics", topic.topic])}>{topic.topic}</a>, by: (topic) => topic.topic, width: "minmax(0, 4fr)" },
  { name: "Type", cell: (topic) => topic.type, by: (topic) => topic.type, width: "60px" },
  { name: "Records", cell: (topic) => whole(topic.count), by: (topic) => topic.count, isNumber: true },
  { name: "Size", cell: (topic) => bytes(topic.bytes), by: (topic) => topic.bytes, isNumber: true },
  { name: "Head", cell: (topic) => whole(topic.head_seq), by: (topic) => topic.head_seq, isNumber: true, isMinor: true },
  { name: "Partitions", cell: (topic) => topic.partitions ?? 1, by: (topic) => topic.partitions ?? 1, isNumber: true, isMinor: true },
  { name: "Synced", cell: (topic) => (topic.durable ? <Badge kind="good">before ack</Badge> : <Badge>after ack</Badge>), by: (topic) => Number(topic.durable), isMinor: true, width: "100px" },
];

export function TopicsPage({ route }: { route: Route }): JSX.Element {
  const { lacks } = useSession();
  const filter = route.query.get("q") ?? "";
  const [making, setMaking] = useState(false);
  const loaded = useLoaded((signal) => pages<Entry>("/v0/topics", "topics", MOST, {}, signal), [], 5_000);
  const topics = loaded.data?.[0];
  const shown = useMemo(() => (topics ?? []).filter((topic) => topic.topic.toLowerCase().includes(filter.toLowerCase())), [topics, filter]);
  return (
    <>
      <Head title="Topics">
        <Button kind="main" unless={lacks("admin")} onClick={() => setMaking(true)}>New topic</Button>
      </Head>
      <div class="tools">
        <Field label="Filter">{(id) => <input id={id} type="search" value={filter} placeholder="part of a name" onInput={(event) => amend({ q: event.currentTarget.value })} />}</Field>
        <small>{topics === undefined ? "" : `${whole(shown.length)} of ${whole(topics.length)}${loaded.data?.[1] ? " and more" : ""} topics`}</small>
      </div>
      <Of loaded={loaded}>{([all]) => (
        <Table label="Topics" columns={COLUMNS} rows={shown} id={(topic) => topic.topic} empty={all.length === 0
          ? <Empty title="There are no topics yet."><p>A topic is created by its first append, or with “New topic”.</p></Empty>
          : <Empty title={`No topic has “${filter}” in its name.`} />} />
      )}</Of>
      {making && <NewTopic close={() => setMaking(false)} />}
    </>
  );
}

export function NewTopic({ close, type = "log" }: { close: () => void; type?: "log" | "queue" }): JSX.Element {
  const [name, setName] = useState("");
  const [kind, setKind] = useState<string>(type);
  const [durability, setDurability] = useState("fsync");
  const [partitions, setPartitions] = useState("1");
  const [dead, setDead] = useState("");
  const [most, setMost] = useState("5");
  const [error, setError] = useState<unknown>();
  const isQueue = kind === "queue";
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    const queue = dead === "" ? {} : { dead_letter: dead, max_deliveries: Number(most) };
    const body = { type: kind, durability, ...(isQueue ? queue : { partitions: Number(partitions) }) };
    try {
      const made = await call<Schemas["TopicPutAnswer"]>("PUT", topicPath(name), { body, query: {} });
      close();
      go([isQueue ? "queues" : "topics", made.topic]);
    } catch (failure) {
      setError(failure);
    }
  };
  return (
    <Dialog title={isQueue ? "New queue" : "New topic"} close={close}>
      <form onSubmit={(event) => void submit(event)}>
        <Field label="Name" hint="Letters, digits and . _ : - ; at most 255.">{(id) => <input id={id} value={name} required pattern="[A-Za-z0-9_][A-Za-z0-9._:\-]{0,254}" autocomplete="off" spellcheck={false} onInput={(event) => setName(event.currentTarget.value)} />}</Field>
        <Field label="Type">{(id) => <select id={id} value={kind} onChange={(event) => setKind(event.currentTarget.value)}><option value="log">log: records that are read in order</option><option value="queue">queue: jobs that workers claim</option></select>}</Field>
        <Field label="Durability" hint="What an ack of a write means.">{(id) => (
          <select id={id} value={durability} onChange={(event) => setDurability(event.currentTarget.value)}>
            <option value="fsync">fsync: synced to disk before the ack</option>
            <option value="disk">disk: written before the ack, synced soon after</option>
            <option value="memory">memory: in memory before the ack</option>
            <option value="ephemeral">ephemeral: never on disk</option>
          </select>
        )}</Field>
        {!isQueue && <Field label="Partitions" hint="They can grow later, but not shrink.">{(id) => <input id={id} type="number" min="1" max="1024" value={partitions} onInput={(event) => setPartitions(event.currentTarget.value)} />}</Field>}
        {isQueue && <Field label="Dead letter topic" hint="For jobs that were delivered too often; empty: none.">{(id) => <input id={id} value={dead} autocomplete="off" spellcheck={false} onInput={(event) => setDead(event.currentTarget.value)} />}</Field>}
        {isQueue && dead !== "" && <Field label="Deliveries before that">{(id) => <input id={id} type="number" min="1" value={most} onInput={(event) => setMost(event.currentTarget.value)} />}</Field>}
        {error !== undefined && <p class="error" role="alert">{reason(error)}</p>}
        <p class="actions"><Button onClick={close}>Cancel</Button><Button type="submit" kind="main">Create</Button></p>
      </form>
    </Dialog>
  );
}
