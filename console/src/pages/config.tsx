// The settings of a topic. A change is shown as a difference first, with what it deletes at once.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { call, read, reason, topicPath } from "../api.js";
import { useSession } from "../data.js";
import { bytes, whole } from "../format.js";
import { Button, Confirm, Field } from "../ui.js";
import type { Topic } from "./topic.js";

type Config = Topic["config"];
type Name = keyof Config;
type Value = string | number | boolean | null;

interface Setting {
  name: Name;
  kind: "number" | "flag" | "text" | readonly string[];
  hint: string;
  of?: "queue" | "log";
}

const SETTINGS: Setting[] = [
  { name: "durability", kind: ["ephemeral", "memory", "disk", "fsync"], hint: "what an ack of a write means" },
  { name: "ttl_ms", kind: "number", hint: "older records are deleted; 0: never" },
  { name: "cap_records", kind: "number", hint: "the most live records; 0: no limit" },
  { name: "cap_bytes", kind: "number", hint: "the most live bytes; 0: no limit" },
  { name: "discard", kind: ["old", "reject"], hint: "at a cap: delete the oldest, or refuse writes" },
  { name: "retention", kind: ["all", "consumed"], hint: "consumed: delete what all consumers have read" },
  { name: "consumed_max_bytes", kind: "number", hint: "with retention consumed: the oldest go beyond this; 0: no limit" },
  { name: "cleanup_policy", kind: ["delete", "compact", "compact,delete", "none"], hint: "Kafka's setting" },
  { name: "partitions", kind: "number", hint: "can grow, never shrink", of: "log" },
  { name: "idempotency_window_ms", kind: "number", hint: "how long idempotency keys are remembered" },
  { name: "dedupe_node", kind: "flag", hint: "readers do not get records of their own node" },
  { name: "auto_create", kind: "flag", hint: "" },
  { name: "priority", kind: "number", hint: "-1000 to 1000; empty: automatic" },
  { name: "lease_ms", kind: "number", hint: "the visibility timeout", of: "queue" },
  { name: "max_deliveries", kind: "number", hint: "before a job is dead; 0: no limit", of: "queue" },
  { name: "dead_letter", kind: "text", hint: "the topic for dead jobs; empty: none", of: "queue" },
  { name: "retry_backoff_ms", kind: "number", hint: "before the second delivery; doubles", of: "queue" },
  { name: "retry_backoff_max_ms", kind: "number", hint: "", of: "queue" },
  { name: "claim_jitter_ms", kind: "number", hint: "", of: "queue" },
  { name: "leases_durable", kind: "flag", hint: "leases survive a crash of the broker", of: "queue" },
  { name: "max_message_bytes", kind: "number", hint: "of a Kafka producer; 0: the broker's limit" },
  { name: "compression_type", kind: ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"], hint: "for Kafka clients that fetch" },
];
const NULLABLE = new Set<Name>(["priority", "dead_letter"]);
const CLASSES = ["ephemeral", "memory", "disk", "fsync"];

export function ConfigTab({ topic, changed }: { topic: Topic; changed: () => void }): JSX.Element {
  const { lacks, say } = useSession();
  const [edits, setEdits] = useState<Partial<Record<Name, Value>>>({});
  const [asked, setAsked] = useState<{ losses: string[]; notes: string[] }>();
  const [checking, setChecking] = useState(false);
  const config = topic.config as Record<Name, Value>;
  const settings = SETTINGS.filter((setting) => setting.of === undefined || setting.of === topic.type);
  const changes = settings.filter(({ name }) => name in edits && edits[name] !== config[name]);
  const review = async (): Promise<void> => {
    setChecking(true);
    const changed = Object.fromEntries(changes.map(({ name }) => [name, edits[name]])) as Partial<Record<Name, Value>>;
    try {
      setAsked({ losses: await losses(topic, changed), notes: notes(topic, changed) });
    } catch (failure) {
      say(`What the change deletes cannot be counted: ${reason(failure)}`, "bad");
    }
    setChecking(false);
  };
  const apply = async (): Promise<void> => {
    await call("PATCH", topicPath(topic.topic), { body: Object.fromEntries(changes.map(({ name }) => [name, edits[name]])) });
    setEdits({});
    say(`Changed ${changes.map(({ name }) => name).join(", ")}.`);
    changed();
  };
  return (
    <form class="card" onSubmit={(event) => { event.preventDefault(); void review(); }}>
      <div class="fields">
        {settings.map((setting) => (
          <Field key={setting.name} label={setting.name} hint={setting.hint}>
            {(id) => <Input id={id} setting={setting} value={setting.name in edits ? (edits[setting.name] ?? null) : config[setting.name]} set={(value) => setEdits({ ...edits, [setting.name]: value })} />}
          </Field>
        ))}
      </div>
      <p class="actions">
        <Button type="submit" kind="main" disabled={changes.length === 0 || checking} unless={lacks("admin")}>Review {changes.length > 0 ? `${changes.length} ${changes.length === 1 ? "change" : "changes"}` : "changes"}</Button>
        <Button disabled={changes.length === 0} onClick={() => setEdits({})}>Reset</Button>
      </p>
      {asked !== undefined && (
        <Confirm title={`Change ${topic.topic}`} action="Apply" losses={asked.losses} name={asked.losses.length > 0 ? topic.topic : undefined} run={apply} close={() => setAsked(undefined)}>
          <ul class="changes" aria-label="Changes">
            {changes.map(({ name }) => <li key={name}><code>{name}</code>: <del>{String(config[name])}</del> → <ins>{String(edits[name])}</ins></li>)}
          </ul>
          {asked.notes.map((note) => <p key={note}>{note}</p>)}
        </Confirm>
      )}
    </form>
  );
}

function Input({ id, setting, value, set }: { id: string; setting: Setting; value: Value; set: (value: Value) => void }): JSX.Element {
  const { kind, name } = setting;
  if (kind === "flag") return <select id={id} value={String(value)} onChange={(event) => set(event.currentTarget.value === "true")}><option value="true">true</option><option value="false">false</option></select>;
  if (kind === "text") return <input id={id} value={String(value ?? "")} autocomplete="off" spellcheck={false} onInput={(event) => set(event.currentTarget.value === "" && NULLABLE.has(name) ? null : event.currentTarget.value)} />;
  if (kind === "number") {
    const take = (text: string): void => set(text === "" ? (NULLABLE.has(name) ? null : 0) : Number(text));
    return <input id={id} type="number" value={value === null ? "" : String(value)} onInput={(event) => take(event.currentTarget.value)} />;
  }
  return <select id={id} value={String(value)} onChange={(event) => set(event.currentTarget.value)}>{kind.map((each) => <option key={each} value={each}>{each}</option>)}</select>;
}

/** What a change deletes at once, counted in the broker where that is possible. */
export async function losses(topic: Topic, changed: Partial<Record<Name, Value>>): Promise<string[]> {
  const found: string[] = [];
  const [ttl, records, size] = [changed["ttl_ms"], changed["cap_records"], changed["cap_bytes"]].map(Number) as [number, number, number];
  if (ttl > 0) {
    const counts = await Promise.all((topic.partitions ?? [{ partition: 0, earliest_seq: topic.earliest_seq, head_seq: topic.head_seq }]).map(async (part) => {
      const page = await read(topic.topic, { from_ts: Date.now() - ttl, limit: 1, include_data: false, include_meta: false }, part.partition);
      return Math.max(0, (page.records[0]?.$seq ?? part.head_seq + 1) - part.earliest_seq);
    }));
    const count = counts.reduce((one, other) => one + other, 0);
    if (count > 0) found.push(`up to ${whole(count)} records that are older than ttl_ms`);
  }
  if (records > 0 && topic.count > records) found.push(`the oldest ${whole(topic.count - records)} of ${whole(topic.count)} records, because of cap_records`);
  if (size > 0 && topic.bytes > size) found.push(`the oldest records, about ${bytes(topic.bytes - size)} of ${bytes(topic.bytes)}, because of cap_bytes`);
  if (changed["retention"] === "consumed" && topic.count > 0) found.push(`all records that every consumer has read${topic.consumers ? `; the slowest is ${whole(topic.consumers.lag)} records behind the head` : ""}`);
  return found;
}

/** What else a change means. */
function notes(topic: Topic, changed: Partial<Record<Name, Value>>): string[] {
  const found: string[] = [];
  const durability = changed["durability"];
  if (typeof durability === "string" && CLASSES.indexOf(durability) < CLASSES.indexOf(topic.config.durability)) {
    found.push(`Records that are acked from now on may be lost ${durability === "disk" ? "in a power cut" : "in a crash of the broker"}.`);
  }
  if (changed["discard"] === "reject") found.push("Writes are refused while the topic is full.");
  if ("dead_letter" in changed && changed["dead_letter"] === null) found.push("Jobs that fail too often are delivered again for ever.");
  if (typeof changed["partitions"] === "number") found.push("Keys are divided among more partitions: the order of a key holds within a partition only.");
  return found;
}
