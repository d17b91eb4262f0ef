// One topic: its figures, and a tab for each thing that people do with it.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { call, get, topicPath, type Schemas } from "../api.js";
import { useLoaded, useSession } from "../data.js";
import { ago, bytes, duration, whole } from "../format.js";
import { go, link, type Route } from "../route.js";
import { Badge, Button, Confirm, Empty, Facts, Head, Of, Spark, Table, Tabs, type Column } from "../ui.js";
import { ConfigTab } from "./config.js";
import { ConsumerTable } from "./consumers.js";
import { Jobs } from "./jobs.js";
import { Produce } from "./produce.js";
import { Records } from "./records.js";
import { StorageTab } from "./storage.js";

export type Topic = Schemas["TopicAnswer"];

export function TopicPage({ name, route }: { name: string; route: Route }): JSX.Element {
  // `touch=false`: looking at a topic is no read of it.
  const loaded = useLoaded((signal) => get<Topic>(topicPath(name), { query: { touch: false }, signal }), [name], 2_000);
  const history = useLoaded((signal) => get<Schemas["TopicHistoryAnswer"]>(topicPath(name, "/history"), { signal }), [name], 60_000);
  const missing = <Empty title={`There is no topic “${name}”.`}><p><a href={link(["topics"])}>All topics</a></p></Empty>;
  return (
    <Of loaded={loaded} missing={<><Head title={name} />{missing}</>}>
      {(topic) => <Shown topic={topic} route={route} reload={loaded.reload} history={history.data} />}
    </Of>
  );
}

function Shown({ topic, route, reload, history }: { topic: Topic; route: Route; reload: () => void; history: Schemas["TopicHistoryAnswer"] | undefined }): JSX.Element {
  const { lacks } = useSession();
  const [deleting, setDeleting] = useState(false);
  const isQueue = topic.type === "queue";
  const base = [isQueue ? "queues" : "topics", topic.topic];
  const tabs = [
    ...(isQueue ? [{ id: "jobs", name: "Jobs" }] : []),
    { id: "records", name: "Records" }, { id: "produce", name: "Produce" }, { id: "config", name: "Config" },
    ...(topic.partitions ? [{ id: "partitions", name: "Partitions" }] : []),
    { id: "storage", name: "Storage" }, { id: "consumers", name: "Consumers" },
  ];
  const asked = route.query.get("tab") ?? "";
  const tab = tabs.some((each) => each.id === asked) ? asked : (tabs[0]?.id ?? "");
  return (
    <>
      <Head title={<>{topic.topic} <Badge>{topic.type}</Badge>{topic.queue?.paused === true && <> <Badge kind="warn">paused</Badge></>}</>}>
        <Button kind="danger" unless={lacks("delete")} onClick={() => setDeleting(true)}>Delete topic</Button>
      </Head>
      <Facts facts={[
        ["Records", whole(topic.count)],
        ["Size", bytes(topic.bytes)],
        topic.partitions ? ["Partitions", <a href={link(base, { tab: "partitions" })}>{topic.partitions.length}</a>] : ["Seqs", topic.head_seq === 0 ? "none yet" : topic.earliest_seq > topic.head_seq ? `none left of ${whole(topic.head_seq)}` : `${whole(topic.earliest_seq)} to ${whole(topic.head_seq)}`],
        ["Durability", topic.config.durability],
        ["Last write", ago(topic.last_write_ts)],
        ["Last read", ago(topic.last_read_ts)],
        ...(topic.queue ? queueFacts(topic.queue) : []),
        ...(topic.consumers ? [["Highest consumer lag", <a href={link(base, { tab: "consumers" })}>{whole(topic.consumers.lag)}</a>] as [string, JSX.Element]] : []),
      ]} />
      {(topic.router_blocked ?? []).length > 0 && <ul class="alerts"><li class="bad">Blocked routers into this topic: {topic.router_blocked?.join(", ")}</li></ul>}
      {history !== undefined && history.appended.length > 1 && (
        <div class="card"><h2>{isQueue ? "Jobs" : "Records"} appended a minute, last hour</h2><Spark values={history.appended} label="Appended a minute" /></div>
      )}
      <Tabs tabs={tabs} current={tab} href={(id) => link(base, { tab: id })} />
      {tab === "jobs" && <Jobs topic={topic} route={route} reload={reload} />}
      {tab === "records" && <Records topic={topic} route={route} />}
      {tab === "produce" && <Produce topic={topic} done={reload} />}
      {tab === "config" && <ConfigTab topic={topic} changed={reload} />}
      {tab === "partitions" && <Partitions topic={topic} base={base} />}
      {tab === "storage" && <StorageTab topic={topic} />}
      {tab === "consumers" && <ConsumerTable topic={topic.topic} partitions={topic.partitions?.length ?? 1} />}
      {deleting && <DeleteTopic topic={topic} close={() => setDeleting(false)} />}
    </>
  );
}

function queueFacts(queue: NonNullable<Topic["queue"]>): [string, JSX.Element | string][] {
  return [
    ["Ready", whole(queue.ready)],
    ["Oldest ready", queue.ready > 0 ? duration(queue.oldest_ready_age_ms) : "–"],
    ["Leased", whole(queue.in_flight)],
    ["Delayed", whole(queue.delayed)],
    ["Dead, in total", whole(queue.dead_lettered)],
    ["Waiting claims", whole(queue.waiting_claims)],
  ];
}

function Partitions({ topic, base }: { topic: Topic; base: string[] }): JSX.Element {
  type Entry = NonNullable<Topic["partitions"]>[number];
  const columns: Column<Entry>[] = [
    { name: "Partition", cell: (each) => <a href={link(base, { tab: "records", partition: each.partition })}>{each.partition}</a>, by: (each) => each.partition, width: "80px" },
    { name: "Records", cell: (each) => whole(each.count), by: (each) => each.count, isNumber: true },
    { name: "Size", cell: (each) => bytes(each.bytes), by: (each) => each.bytes, isNumber: true },
    { name: "Earliest", cell: (each) => whole(each.earliest_seq), by: (each) => each.earliest_seq, isNumber: true, isMinor: true },
    { name: "Head", cell: (each) => whole(each.head_seq), by: (each) => each.head_seq, isNumber: true },
    { name: "Last write", cell: (each) => ago(each.last_write_ts), by: (each) => each.last_write_ts ?? 0, isMinor: true },
  ];
  return <Table label="Partitions" columns={columns} rows={topic.partitions ?? []} id={(each) => String(each.partition)} />;
}

function DeleteTopic({ topic, close }: { topic: Topic; close: () => void }): JSX.Element {
  const { say } = useSession();
  const losses = [
    `${whole(topic.count)} records, ${bytes(topic.bytes)}`,
    ...(topic.consumers ? [`the positions of ${whole(topic.consumers.count)} consumers`] : []),
    ...(topic.queue ? [`${whole(topic.queue.in_flight)} leases of workers`] : []),
    "all routers from and to this topic",
  ];
  const run = async (): Promise<void> => {
    await call("DELETE", topicPath(topic.topic));
    say(`Deleted ${topic.topic}.`);
    go([topic.type === "queue" ? "queues" : "topics"]);
  };
  return <Confirm title={`Delete ${topic.topic}`} action="Delete topic" losses={losses} name={topic.topic} run={run} close={close} />;
}
