import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import {
  ApiError, ConnectionFailed, RecordsLost, SeqOutOfRange, TopicsClient, UnexpectedAnswer, bytesOf,
} from "../src/index.js";
import { EventParser } from "../src/events.js";
import { checkNumbers } from "../src/transport.js";
import { Broker } from "./broker.js";
import { STEPS, walk } from "./walk.js";

let broker: Broker;
before(async () => void (broker = await Broker.start()));
after(() => broker.end());

type Fetch = typeof globalThis.fetch;
const json = (body: unknown, status: number, headers: Record<string, string>): Response =>
  new Response(JSON.stringify(body), { status, headers });
const refusal = (status: number, code: string, detail = {}, headers = {}): Response =>
  json({ error: { code, message: code, detail } }, status, headers);

/** A client whose first answers are these in place of the broker's; a function gets the request and may send it on. */
function faulty(...first: (Response | Error | Fetch)[]): { client: TopicsClient; bodies: string[] } {
  const bodies: string[] = [];
  const fetch: Fetch = async (url, init) => {
    bodies.push(String(init?.body ?? ""));
    const next = first.shift();
    if (next instanceof Error) throw next;
    if (typeof next === "function") return next(url, init);
    return next ?? globalThis.fetch(url, init);
  };
  return { client: new TopicsClient(broker.url, { fetch, retry: { baseMs: 1, capMs: 2 } }), bodies };
}

test("a walk through everything", async () => {
  assert.deepEqual(await walk(broker.url, {}, "node"), STEPS);
});

test("an append whose answer is lost is stored once", async () => {
  const lost: Fetch = async (url, init) => {
    await globalThis.fetch(url, init);
    throw new TypeError("the line broke");
  };
  const { client, bodies } = faulty(lost, lost);
  const answer = await client.append("lost", [{ data: 1 }]);
  assert.equal(answer.deduped, true);
  assert.equal(new Set(bodies).size, 1);
  assert.equal(bodies.length, 3);
  assert.equal((await client.read("lost")).head_seq, 1);
});

test("what passes is tried again, and what stays is not", async () => {
  const pressed = refusal(429, "throttled", { retry_after_ms: 1 });
  const passing = faulty(refusal(503, "not_ready"), pressed, new TypeError("no line"));
  await passing.client.append("again", [{ data: 1 }]);
  assert.equal(passing.bodies.length, 4);
  const staying = faulty(refusal(429, "throttled", { limit: "max_topics", max: 1 }));
  await assert.rejects(staying.client.append("again", [{ data: 1 }]), (error: ApiError) => error.code === "throttled");
  assert.equal(staying.bodies.length, 1);
});

test("a post that may have been done is not repeated", async () => {
  const { client, bodies } = faulty(new TypeError("the line broke"));
  const redrive = client.request("post", "/v0/topics/{topic}/redrive", { path: { topic: "again" }, body: {} });
  await assert.rejects(redrive, { name: "ConnectionFailed", outcome: "unknown" });
  assert.equal(bodies.length, 1);
});

test("retries end with the policy, and with the signal", async () => {
  const down = new TopicsClient("http://127.0.0.1:9", { retry: { totalMs: 50, baseMs: 1, capMs: 5 } });
  await assert.rejects(down.read("t"), ConnectionFailed);
  const patient = new TopicsClient("http://127.0.0.1:9");
  await assert.rejects(patient.read("t", { signal: AbortSignal.timeout(20) }), { name: "TimeoutError" });
});

test("the wait that the broker asks for is waited", async () => {
  const { client } = faulty(refusal(503, "wal_saturated", {}, { "retry-after": "0.2" }));
  const began = performance.now();
  await client.append("slow", [{ data: 1 }]);
  assert.ok(performance.now() - began >= 195);
});

test("an ack that was done, and whose answer was lost, is no lost lease", async () => {
  const { client } = faulty();
  await client.request("put", "/v0/topics/{topic}", { path: { topic: "acks" }, body: { type: "queue" } });
  await client.append("acks", [{ data: 1 }]);
  const { claimed } = await client.claim("acks", { node: "n" });
  const lost: Fetch = async (url, init) => {
    await globalThis.fetch(url, init);
    throw new TypeError("the line broke");
  };
  const answer = await faulty(lost).client.ack("acks", "n", claimed);
  assert.deepEqual([answer.acked, answer.skipped], [0, [1]]);
});

test("dead letters go back, all or those that are named, and never twice", async () => {
  const client = new TopicsClient(broker.url);
  const put = (topic: string, body: object): Promise<unknown> =>
    client.request("put", "/v0/topics/{topic}", { path: { topic }, body });
  await put("letters", {});
  await put("mails", { type: "queue", dead_letter: "letters", max_deliveries: 1 });
  await client.append("mails", [{ data: "a" }, { data: "b" }, { data: "c" }]);
  const { claimed } = await client.claim("mails", { node: "n", max: 3 });
  await client.nack("mails", "n", claimed);
  while ((await client.redrive("mails", { dry_run: true })).moved < 3) await new Promise((go) => setTimeout(go, 10));
  const letters = await client.read<string>("letters");
  const second = letters.records.find((record) => record.data === "b")?.$seq ?? 0;
  const { moved } = await client.redrive("mails", { seqs: [second, 99] });
  assert.equal(moved, 1);
  assert.deepEqual((await client.claim("mails", { node: "n", max: 3 })).claimed.map((job) => job.data), ["b"]);
  assert.equal((await client.redrive("mails")).moved, 2);
  const { client: cut, bodies } = faulty(new TypeError("the line broke"));
  await assert.rejects(cut.redrive("mails"), { name: "ConnectionFailed", outcome: "unknown" });
  assert.equal(bodies.length, 1);
  const other = faulty(new TypeError("the line broke"));
  assert.equal((await other.client.redrive("mails", { dry_run: true })).moved, 0);
  assert.equal(other.bodies.length, 2);
});

test("something else than a broker is told from one", async () => {
  await assert.rejects(faulty(new Response("<html>", { status: 404 })).client.read("t"), UnexpectedAnswer);
  await assert.rejects(faulty(new Response("<html>")).client.read("t"), UnexpectedAnswer);
  const error = await faulty(new Response("<html>", { status: 502 })).client.append("proxy", [{ data: 1 }]);
  assert.equal(error.first_seq, 1);
});

test("numbers that JavaScript cannot hold are an error, in payloads they are the reader's", async () => {
  const page = `{"records":[{"$seq":1,"$ts":0,"data":9007199254740993}],"tombstone":null,"head_seq":`;
  const fine = faulty(new Response(`${page}9007199254740991}`));
  assert.equal((await fine.client.read("t")).head_seq, Number.MAX_SAFE_INTEGER);
  for (const seq of ["9007199254740992", "9007199254740993", "18446744073709551615"]) {
    const reading = faulty(new Response(`${page}${seq}}`)).client.read("t");
    await assert.rejects(reading, { name: "SeqOutOfRange", field: "head_seq" });
  }
  await assert.rejects(faulty().client.read("t", { from_seq: 2 ** 53 }), SeqOutOfRange);
  assert.throws(() => checkNumbers({ seqs: [1, 2 ** 60] }, "none"), SeqOutOfRange);
});

test("payloads above 2^53 can be read exactly with a parser of one's own", async () => {
  const client = new TopicsClient(broker.url, {
    parse: (text) => JSON.parse(text.replace(/"data":(\d{16,})/g, '"data":"$1"')) as unknown,
  });
  await fetch(`${broker.url}/v0/topics/big`, {
    method: "POST", headers: { "Content-Type": "application/json" }, body: '{"records":[{"data":9007199254740993}]}',
  });
  assert.equal((await client.read("big")).records[0]?.data, "9007199254740993");
});

test("raw payloads are bytes", () => {
  assert.deepEqual(bytesOf({ $base64: "AP/+" }), new Uint8Array([0, 255, 254]));
  assert.equal(bytesOf({ base64: "AP/+" }), undefined);
});

test("a loss ends reading, unless somebody takes note of it", async () => {
  const client = new TopicsClient(broker.url);
  await client.append("capped", [1, 2, 3, 4].map((data) => ({ data })));
  await client.request("put", "/v0/topics/{topic}", { path: { topic: "capped" }, body: { cap_records: 1 } });
  const read = async (onLoss?: (tombstone: { gap_to: number }) => void): Promise<unknown[]> => {
    const found: unknown[] = [];
    for await (const record of client.records("capped", onLoss ? { onLoss } : {})) found.push(record.data);
    return found;
  };
  await assert.rejects(read(), (error: RecordsLost) => error.tombstone.gap_to === 3);
  const gaps: number[] = [];
  assert.deepEqual(await read(({ gap_to }) => void gaps.push(gap_to)), [4]);
  assert.deepEqual(gaps, [3]);
});

test("events are whole wherever the stream is cut", () => {
  const text = ': hb 1\n\nevent: record\nid: x\ndata: {"a": "ä\\n"}\n\nretry: 2000\n\nevent: error\ndata: {}\n\n';
  for (let cut = 0; cut <= text.length; cut += 1) {
    const parser = new EventParser();
    const found = [...parser.feed(text.slice(0, cut)), ...parser.feed(text.slice(cut))];
    const record = { event: "record", id: "x", data: '{"a": "ä\\n"}' };
    assert.deepEqual(found, [record, { event: "error", id: "", data: "{}" }]);
  }
});
