// Consumers of all topics, and Kafka's groups, with how far each is behind.
import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { call, get, isMissing, pages, topicPath, type Schemas } from "../api.js";
import { useLoaded, useSession } from "../data.js";
import { whole } from "../format.js";
import { amend, link, type Route } from "../route.js";
import { Badge, Button, Confirm, Dialog, Empty, Facts, Field, Head, Of, Table, Tabs, type Column } from "../ui.js";

type Entry = Schemas["AllConsumersAnswer"]["consumers"][number];

interface Group {
  consumer_group_id: string;
  state: string;
  is_simple: boolean;
  partition_assignor: string;
}
interface Lag {
  topic_name: string;
  partition_id: number;
  current_offset: number;
  log_end_offset: number;
  lag: number;
  consumer_id: string;
  client_id: string;
}

const MOST = 20_000;
const idOf = (entry: Entry): string => `${entry.topic}/${entry.partition ?? 0}/${entry.consumer}`;
const kindOf = (lag: number): "good" | "warn" | "bad" => (lag === 0 ? "good" : lag < 10_000 ? "warn" : "bad");

export function ConsumersPage({ route }: { route: Route }): JSX.Element {
  const tab = route.query.get("tab") ?? "consumers";
  const group = route.path[1];
  return (
    <>
      <Head title={group ?? "Consumers"} />
      <Tabs current={tab} tabs={[{ id: "consumers", name: "Consumers" }, { id: "groups", name: "Kafka groups" }]} href={(id) => link(["consumers"], { tab: id })} />
      {tab === "groups" ? (group === undefined ? <Groups /> : <GroupLags group={group} />) : <All route={route} />}
    </>
  );
}

function columns(withTopic: boolean, open: (entry: Entry) => void): Column<Entry>[] {
  return [
    { name: "Consumer", cell: (entry) => <button type="button" class="button quiet" onClick={() => open(entry)}>{entry.consumer}</button>, by: (entry) => entry.consumer, width: "minmax(0, 3fr)" },
    ...(withTopic ? [{ name: "Topic", cell: (entry: Entry) => <a href={link(["topics", entry.topic], { tab: "consumers" })}>{entry.topic}</a>, by: (entry: Entry) => entry.topic, width: "minmax(0, 3fr)" }] : []),
    { name: "Part.", cell: (entry) => entry.partition ?? 0, by: (entry) => entry.partition ?? 0, isNumber: true, width: "52px" },
    { name: "Lag", cell: (entry) => <Badge kind={kindOf(entry.lag)}>{whole(entry.lag)}</Badge>, by: (entry) => entry.lag, isNumber: true },
    { name: "Unread", cell: (entry) => whole(entry.unread), by: (entry) => entry.unread, isNumber: true, isMinor: true },
    { name: "Position", cell: (entry) => whole(entry.cursor_seq), by: (entry) => entry.cursor_seq, isNumber: true, isMinor: true },
    { name: "After a crash", cell: (entry) => (entry.consistency === "strictly_at_once" ? "no repeats" : `≤ ${whole(entry.persist_every)} repeats`), isMinor: true },
  ];
}

function All({ route }: { route: Route }): JSX.Element {
  const filter = route.query.get("q") ?? "";
  const [open, setOpen] = useState<Entry>();
  const loaded = useLoaded((signal) => pages<Entry>("/v0/consumers", "consumers", MOST, {}, signal), [], 5_000);
  const shown = useMemo(() => (loaded.data?.[0] ?? []).filter((entry) => idOf(entry).toLowerCase().includes(filter.toLowerCase())), [loaded.data, filter]);
  const total = shown.reduce((sum, entry) => sum + entry.lag, 0);
  return (
    <>
      <div class="tools">
        <Field label="Filter">{(id) => <input id={id} type="search" value={filter} placeholder="consumer or topic" onInput={(event) => amend({ q: event.currentTarget.value })} />}</Field>
        <small>{loaded.data === undefined ? "" : `${whole(shown.length)}${loaded.data[1] ? " and more" : ""} positions, ${whole(total)} records behind in all`}</small>
      </div>
      <Of loaded={loaded}>{() => (
        <Table label="Consumers" columns={columns(true, setOpen)} rows={shown} id={idOf} start={{ column: "Lag", isDown: true }}
          empty={<Empty title={filter === "" ? "There are no consumers." : "No consumer matches."}><p>A consumer is a position in a topic that the broker keeps.</p></Empty>} />
      )}</Of>
      {open !== undefined && <ConsumerDialog entry={open} close={() => { setOpen(undefined); loaded.reload(); }} />}
    </>
  );
}

/** The consumers of one topic, over all of its partitions. */
export function ConsumerTable({ topic, partitions }: { topic: string; partitions: number }): JSX.Element {
  const [open, setOpen] = useState<Entry>();
  const loaded = useLoaded(async (signal) => {
    const found = await Promise.all(Array.from({ length: partitions }, (_, partition) => pages<Entry>(topicPath(topic, "/consumers"), "consumers", MOST, partition > 0 ? { partition } : {}, signal)));
    return found.flatMap(([entries]) => entries);
  }, [topic, partitions], 5_000);
  return (
    <>
      <Of loaded={loaded}>{(entries) => (
        <Table label="Consumers" columns={columns(false, setOpen)} rows={entries} id={idOf} start={{ column: "Lag", isDown: true }}
          empty={<Empty title="No consumer reads this topic."><p>Readers without a consumer remember their position themselves.</p></Empty>} />
      )}</Of>
      {open !== undefined && <ConsumerDialog entry={open} close={() => { setOpen(undefined); loaded.reload(); }} />}
    </>
  );
}

const GROUP = "group:";

const consumerPath = (entry: Entry, rest = ""): string => topicPath(entry.topic, `/consumers/${encodeURIComponent(entry.consumer)}${rest}`);
const partitionOf = (entry: Entry): { partition?: number } => ((entry.partition ?? 0) > 0 ? { partition: entry.partition } : {});

/** One position, and what can be done with it. */
function ConsumerDialog({ entry, close }: { entry: Entry; close: () => void }): JSX.Element {
  const { lacks } = useSession();
  const [doing, setDoing] = useState<"move" | "delete">();
  if (doing === "move") return <Seek entry={entry} close={close} />;
  if (doing === "delete") return <Forget entry={entry} close={close} />;
  const group = entry.consumer.startsWith(GROUP) ? entry.consumer.slice(GROUP.length) : undefined;
  return (
    <Dialog title={entry.consumer} close={close}>
      <div>
        <Facts facts={[
          ["Topic", <a href={link(["topics", entry.topic])}>{entry.topic}</a>], ["Partition", String(entry.partition ?? 0)],
          ["Position", whole(entry.cursor_seq)], ["Lag", whole(entry.lag)], ["Unread", whole(entry.unread)],
          ["After a crash", entry.consistency === "strictly_at_once" ? "no repeats" : `at most ${whole(entry.persist_every)} repeats`],
        ]} />
        {group !== undefined && <p>This is the committed offset of the Kafka group <a href={link(["consumers", group], { tab: "groups" })}>{group}</a>. Its members commit over a change.</p>}
        <p class="actions">
          <Button kind="danger" unless={lacks(["read", "write"])} onClick={() => setDoing("delete")}>Delete</Button>
          <Button kind="main" unless={lacks(["read", "write"])} onClick={() => setDoing("move")}>Move</Button>
        </p>
      </div>
    </Dialog>
  );
}

function Forget({ entry, close }: { entry: Entry; close: () => void }): JSX.Element {
  const { say } = useSession();
  const run = async (): Promise<void> => {
    await call("DELETE", consumerPath(entry), { query: partitionOf(entry) });
    say(`Deleted ${entry.consumer}.`);
  };
  return (
    <Confirm title={`Delete ${entry.consumer}`} action="Delete consumer" losses={[`the position ${whole(entry.cursor_seq)} in partition ${entry.partition ?? 0} of ${entry.topic}`]} name={entry.consumer} run={run} close={close}>
      <p>Records stay, unless the topic has retention “consumed”: it then deletes what only this consumer has not read.</p>
    </Confirm>
  );
}

function Seek({ entry, close }: { entry: Entry; close: () => void }): JSX.Element {
  const { say } = useSession();
  const [to, setTo] = useState("head");
  const [seq, setSeq] = useState(String(entry.cursor_seq));
  const skipped = to === "head" ? entry.lag : to === "earliest" ? 0 : Math.max(0, Number(seq) - entry.cursor_seq);
  const run = async (): Promise<void> => {
    const body = to === "seq" ? { seq: Number(seq) } : { to };
    await call("POST", consumerPath(entry, "/seek"), { query: partitionOf(entry), body });
    say(`Moved ${entry.consumer}.`);
  };
  return (
    <Confirm title={`Move ${entry.consumer}`} action="Move" losses={[]} run={run} close={close}>
      <Facts facts={[["Topic", entry.topic], ["Partition", String(entry.partition ?? 0)], ["Position", whole(entry.cursor_seq)], ["Lag", whole(entry.lag)]]} />
      <Field label="To">{(id) => <select id={id} value={to} onChange={(event) => setTo(event.currentTarget.value)}><option value="head">the head: skip everything</option><option value="earliest">the oldest record: read again</option><option value="seq">a seq</option></select>}</Field>
      {to === "seq" && <Field label="Seq" hint="The last one that counts as read.">{(id) => <input id={id} type="number" min="0" value={seq} onInput={(event) => setSeq(event.currentTarget.value)} />}</Field>}
      <p>{skipped > 0 ? `The consumer skips up to ${whole(skipped)} records. They stay in the topic.` : "The consumer gets records again that it has had."}</p>
    </Confirm>
  );
}

// -- Kafka groups ----------------------------------------------------------------------------------------------------

/** The path of the cluster in the REST Proxy. */
async function restPath(prefix: string, signal: AbortSignal): Promise<string> {
  const found = await get<{ data: { cluster_id: string }[] }>(`${prefix}/v3/clusters`, { signal });
  return `${prefix}/v3/clusters/${encodeURIComponent(found.data[0]?.cluster_id ?? "")}/consumer-groups`;
}

function Groups(): JSX.Element {
  const { keys } = useSession();
  const prefix = keys?.rest_prefix ?? "";
  const loaded = useLoaded(async (signal) => {
    const path = await restPath(prefix, signal);
    const groups = (await get<{ data: Group[] }>(path, { signal })).data;
    const some = groups.slice(0, 200);
    const lags = await Promise.all(some.map((group) => get<{ total_lag: number; max_lag: number }>(`${path}/${encodeURIComponent(group.consumer_group_id)}/lag-summary`, { signal }).catch(() => undefined)));
    return groups.map((group, at) => ({ ...group, lag: lags[at]?.total_lag }));
  }, [prefix], 5_000);
  type Shown = Group & { lag: number | undefined };
  const columns: Column<Shown>[] = [
    { name: "Group", cell: (group) => <a href={link(["consumers", group.consumer_group_id], { tab: "groups" })}>{group.consumer_group_id}</a>, by: (group) => group.consumer_group_id, width: "minmax(0, 3fr)" },
    { name: "State", cell: (group) => <Badge kind={group.state === "STABLE" ? "good" : group.state === "EMPTY" || group.state === "DEAD" ? undefined : "warn"}>{group.state.toLowerCase()}</Badge>, by: (group) => group.state },
    { name: "Assignor", cell: (group) => group.partition_assignor || "–", isMinor: true },
    { name: "Lag", cell: (group) => (group.lag === undefined ? "–" : <Badge kind={kindOf(group.lag)}>{whole(group.lag)}</Badge>), by: (group) => group.lag ?? -1, isNumber: true },
  ];
  return <Of loaded={loaded}>{(groups) => <Table label="Kafka groups" columns={columns} rows={groups} id={(group) => group.consumer_group_id} start={{ column: "Lag", isDown: true }} empty={<Empty title="There are no Kafka groups."><p>Groups of Kafka clients and of the REST Proxy appear here.</p></Empty>} />}</Of>;
}

function GroupLags({ group }: { group: string }): JSX.Element {
  const { keys } = useSession();
  const prefix = keys?.rest_prefix ?? "";
  const loaded = useLoaded(async (signal) => {
    const path = `${await restPath(prefix, signal)}/${encodeURIComponent(group)}`;
    const found = await get<Group>(path, { signal });
    const lags = await get<{ data: Lag[] }>(`${path}/lags`, { signal }).catch((error: unknown) => {
      if (isMissing(error)) return { data: [] };
      throw error;
    });
    const members = await get<{ data: { consumer_id: string; client_id: string }[] }>(`${path}/consumers`, { signal });
    return { group: found, lags: lags.data, members: members.data };
  }, [prefix, group], 3_000);
  const columns: Column<Lag>[] = [
    { name: "Topic", cell: (lag) => <a href={link(["topics", lag.topic_name])}>{lag.topic_name}</a>, by: (lag) => lag.topic_name, width: "minmax(0, 3fr)" },
    { name: "Part.", cell: (lag) => lag.partition_id, by: (lag) => lag.partition_id, isNumber: true, width: "56px" },
    { name: "Committed", cell: (lag) => whole(lag.current_offset), by: (lag) => lag.current_offset, isNumber: true, isMinor: true },
    { name: "End", cell: (lag) => whole(lag.log_end_offset), by: (lag) => lag.log_end_offset, isNumber: true, isMinor: true },
    { name: "Lag", cell: (lag) => <Badge kind={kindOf(lag.lag)}>{whole(lag.lag)}</Badge>, by: (lag) => lag.lag, isNumber: true },
    { name: "Member", cell: (lag) => lag.client_id || <Badge kind="bad">none</Badge>, by: (lag) => lag.client_id, width: "minmax(0, 2fr)" },
  ];
  return (
    <Of loaded={loaded} missing={<Empty title="There is no such group."><p><a href={link(["consumers"], { tab: "groups" })}>All groups</a></p></Empty>}>{({ group: found, lags, members }) => (
      <>
        <Facts facts={[["State", found.state.toLowerCase()], ["Members", whole(members.length)], ["Lag", whole(lags.reduce((sum, lag) => sum + lag.lag, 0))], ["Partitions without a member", whole(lags.filter((lag) => lag.client_id === "").length)]]} />
        {why(found, lags, members.length).map((text) => <p key={text} class="card">{text}</p>)}
        <Table label="Lag by partition" columns={columns} rows={lags} id={(lag) => `${lag.topic_name}/${lag.partition_id}`} start={{ column: "Lag", isDown: true }} empty={<Empty title="This group has committed no offsets." />} />
      </>
    )}</Of>
  );
}

/** Why a group lags, as far as the broker can see. */
function why(group: Group, lags: readonly Lag[], members: number): string[] {
  const behind = lags.filter((lag) => lag.lag > 0);
  if (behind.length === 0) return [];
  if (members === 0) return ["The group has no members: nobody reads. Its lag grows until a consumer starts."];
  if (group.state !== "STABLE") return [`The group is ${group.state.toLowerCase()}: members are being assigned partitions, and read again after that.`];
  const alone = behind.filter((lag) => lag.client_id === "");
  if (alone.length > 0) return [`${alone.length} partitions have no member that reads them.`];
  const total = behind.reduce((sum, lag) => sum + lag.lag, 0);
  const worst = behind.reduce((one, other) => (other.lag > one.lag ? other : one));
  if (worst.lag > total / 2 && lags.length > 1) return [`Partition ${worst.partition_id} of ${worst.topic_name} has ${Math.round((100 * worst.lag) / total)} % of the lag; ${worst.client_id} reads it.`];
  return [`All partitions are behind: ${members} ${members === 1 ? "member reads" : "members read"} more slowly than records arrive.`];
}
