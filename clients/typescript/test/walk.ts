// What a program does with a broker, step by step. Runs in Node and in a page alike: nothing here is of either.
import { ApiError, LeaseLost, TopicsClient, Worker, type ClientOptions, type WatchEvent } from "../src/index.js";

function equal(found: unknown, expected: unknown): void {
  const [one, other] = [JSON.stringify(found), JSON.stringify(expected)];
  if (one !== other) throw new Error(`found ${one}, expected ${other}`);
}

async function refused(call: Promise<unknown>, code: string): Promise<void> {
  const error = await call.then(() => undefined, (reason: unknown) => reason);
  if (!(error instanceof ApiError) || error.code !== code) throw new Error(`expected ${code}, found ${String(error)}`);
}

/** Names of topics begin with `prefix`. Returns the steps that were made, which are all of them. */
export async function walk(url: string, options: ClientOptions, prefix: string): Promise<string[]> {
  const client = new TopicsClient(url, options);
  const [log, jobs] = [`${prefix}-log`, `${prefix}-jobs`];
  const steps: string[] = [];

  const first = await client.append(log, [{ data: { n: 1 }, tag: "a" }, { data: "zwölf €" }]);
  equal([first.first_seq, first.last_seq, first.created], [1, 2, true]);
  const once = { idempotency_key: "once" };
  await client.append(log, [{ data: 3 }], once);
  equal((await client.append(log, [{ data: 3 }], once)).deduped, true);
  await refused(client.append(log, [{ data: 4 }], { expected_seq: 1 }), "seq_conflict");
  steps.push("append");

  const page = await client.read(log, { limit: 2, include_tags: true });
  const shown = page.records.map((each) => [each.$seq, each.$tag ?? null, each.data]);
  equal(shown, [[1, "a", { n: 1 }], [2, null, "zwölf €"]]);
  const all: unknown[] = [];
  for await (const record of client.records(log, { limit: 1 })) all.push(record.data);
  equal(all, [{ n: 1 }, "zwölf €", 3]);
  await refused(client.read(`${prefix}-nowhere`), "topic_not_found");
  steps.push("read");

  const seen: [string, number[]][] = [];
  let last = "";
  for await (const event of client.watch({ [log]: { from_seq: 1 } })) {
    seen.push([event.event, seqs(event)]);
    if (event.event === "record") last = event.id;
    if (event.event === "caught-up") break;
  }
  equal(seen, [["record", [2, 3]], ["caught-up", []]]);
  await client.append(log, [{ data: 4 }]);
  for await (const event of client.watch(log, { last_event_id: last })) {
    if (event.event !== "record") continue;
    equal(seqs(event), [4]);
    break;
  }
  steps.push("watch");

  await client.request("put", "/v0/topics/{topic}", { path: { topic: jobs }, body: { type: "queue", lease_ms: 1000 } });
  await client.append(jobs, [1, 2, 3, 4, 5].map((data) => ({ data })));
  const claimed = await client.claim<number>(jobs, { node: "walker", max: 3 });
  const [one, two, three] = claimed.claimed;
  if (one === undefined || two === undefined || three === undefined) throw new Error("three jobs");
  equal((await client.extend(jobs, "walker", [one], 60_000)).extended, 1);
  equal((await client.ack(jobs, "walker", [one])).acked, 1);
  equal((await client.nack(jobs, "walker", [two, three], { penalty: false })).nacked, 2);
  const lost = await client.ack(jobs, "walker", [two]).then(() => undefined, (error: unknown) => error);
  equal(lost instanceof LeaseLost && lost.seqs, [two.$seq]);
  steps.push("claim");

  const done: number[] = [];
  const worker: Worker<number> = new Worker<number>(client, jobs, ({ data }) => {
    done.push(data);
    if (done.length === 4) void worker.stop();
  }, { concurrency: 2 });
  await worker.run();
  equal(done.sort(), [2, 3, 4, 5]);
  const state = await client.request("get", "/v0/topics/{topic}", { path: { topic: jobs } });
  equal([state.count, state.queue?.in_flight], [0, 0]);
  steps.push("work");

  const gone = new AbortController();
  setTimeout(() => gone.abort(new Error("enough")), 50);
  const waiting = client.read(log, { from_seq: 4, wait_ms: 30_000, signal: gone.signal });
  const why = await waiting.catch((error: Error) => error.message);
  equal(why, "enough");
  steps.push("abort");
  return steps;
}

function seqs(event: WatchEvent): number[] {
  return event.event === "record" ? event.data.records.map((record) => record.$seq) : [];
}

export const STEPS = ["append", "read", "watch", "claim", "work", "abort"];
