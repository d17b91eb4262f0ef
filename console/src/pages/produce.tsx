// Append a record or a job by hand.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { client, reason, type Schemas } from "../api.js";
import { useSession } from "../data.js";
import { whole } from "../format.js";
import { parseToSend } from "../json.js";
import { Button, Field } from "../ui.js";
import type { Topic } from "./topic.js";

export function Produce({ topic, done }: { topic: Topic; done: () => void }): JSX.Element {
  const { lacks, say } = useSession();
  const [data, setData] = useState('{"hello": "world"}');
  const [tag, setTag] = useState("");
  const [node, setNode] = useState("");
  const [meta, setMeta] = useState("");
  const [delay, setDelay] = useState("");
  const [partition, setPartition] = useState("0");
  const [error, setError] = useState<string>();
  const [busy, setBusy] = useState(false);
  const count = topic.partitions?.length ?? 1;
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    setError(undefined);
    const record: Schemas["AppendRecord"] = { data: undefined };
    try {
      record.data = parseToSend(data);
    } catch (failure) {
      setError(`Data is no JSON: ${reason(failure)}`);
      return;
    }
    try {
      if (meta.trim() !== "") record.meta = parseToSend(meta) as NonNullable<typeof record.meta>;
    } catch (failure) {
      setError(`Meta is no JSON: ${reason(failure)}`);
      return;
    }
    if (tag !== "") record.tag = tag;
    if (node !== "") record.node = node;
    if (delay !== "") record.delay_ms = Number(delay) * 1000;
    setBusy(true);
    try {
      const options = { create: false, ...(count > 1 ? { partition: Number(partition) } : {}) };
      const answer = await client.append(topic.topic, [record], options);
      say(`Appended seq ${whole(answer.last_seq)}.`);
      done();
    } catch (failure) {
      setError(reason(failure));
    }
    setBusy(false);
  };
  const isQueue = topic.type === "queue";
  return (
    <form class="card" onSubmit={(event) => void submit(event)}>
      <Field label="Data" hint="Any JSON value.">{(id) => <textarea id={id} class="mono" rows={8} value={data} spellcheck={false} onInput={(event) => setData(event.currentTarget.value)} />}</Field>
      <div class="fields">
        <Field label="Tag">{(id) => <input id={id} value={tag} onInput={(event) => setTag(event.currentTarget.value)} />}</Field>
        <Field label="Node">{(id) => <input id={id} value={node} onInput={(event) => setNode(event.currentTarget.value)} />}</Field>
        <Field label="Meta" hint="A JSON object, at most 16 KiB.">{(id) => <input id={id} class="mono" value={meta} placeholder='{"trace": "7f3a"}' onInput={(event) => setMeta(event.currentTarget.value)} />}</Field>
        {isQueue && <Field label="Delay in seconds">{(id) => <input id={id} type="number" min="0" value={delay} onInput={(event) => setDelay(event.currentTarget.value)} />}</Field>}
        {count > 1 && <Field label="Partition">{(id) => <input id={id} type="number" min="0" max={count - 1} value={partition} onInput={(event) => setPartition(event.currentTarget.value)} />}</Field>}
      </div>
      {error !== undefined && <p class="error" role="alert">{error}</p>}
      <p class="actions"><Button type="submit" kind="main" disabled={busy} unless={lacks("write")}>{isQueue ? "Append job" : "Append record"}</Button></p>
    </form>
  );
}
