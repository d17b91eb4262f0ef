import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { ApiError, TopicsClient, type WatchEvent } from "../src/index.js";
import { Broker } from "./broker.js";

let broker: Broker;
let client: TopicsClient;
before(async () => {
  broker = await Broker.start();
  client = new TopicsClient(broker.url);
});
after(() => broker.end());

const dataOf = (event: WatchEvent): unknown[] =>
  event.event === "record" ? event.data.records.map((each) => each.data) : [];

test("a watch goes on over a killed broker, with no record missing and none twice", { timeout: 120_000 }, async () => {
  await client.append("t", [{ data: 0 }]);
  const found: unknown[] = [];
  const watching = (async () => {
    for await (const event of client.watch({ t: { from_seq: 0 } })) {
      found.push(...dataOf(event));
      if (found.length >= 30) return;
    }
  })();
  for (let number = 1; number < 30; number += 1) {
    if (number % 10 === 5) {
      await broker.kill();
      void client.append("t", [{ data: number }]).catch(() => undefined);
      await broker.start();
      while ((await client.read("t", { from_seq: number, wait_ms: 1000 })).records.length === 0);
      continue;
    }
    await client.append("t", [{ data: number }]);
  }
  await watching;
  assert.deepEqual(found, Array.from({ length: 30 }, (_, number) => number));
});

test("a stream that breaks off is resumed", async () => {
  await client.append("cut", [1, 2, 3].map((data) => ({ data })));
  let streams = 0;
  const cutting: typeof globalThis.fetch = async (url, init) => {
    const answer = await fetch(url, init);
    if (!String(url).includes("/v0/watch/")) return answer;
    streams += 1;
    const reader = answer.body?.getReader();
    let pieces = 0;
    const body = new ReadableStream<Uint8Array>({
      async pull(controller) {
        const piece = await reader?.read();
        if (!piece || piece.done || (pieces += 1) > 2) {
          controller.close();
          await reader?.cancel();
        } else {
          controller.enqueue(piece.value);
        }
      },
    });
    return new Response(body, { status: answer.status });
  };
  const flaky = new TopicsClient(broker.url, { fetch: cutting, retry: { baseMs: 1, capMs: 2 } });
  const found: unknown[] = [];
  for await (const event of flaky.watch({ cut: { from_seq: 0 } }, { limit: 1 })) {
    found.push(...dataOf(event));
    if (found.length >= 6) break;
    if (event.event === "caught-up") await client.append("cut", [{ data: found.length + 1 }]);
  }
  assert.deepEqual(found, [1, 2, 3, 4, 5, 6]);
  assert.ok(streams > 1);
});

test("a stream that breaks off before its events have ids is resumed in every partition", async () => {
  await client.request("put", "/v0/topics/{topic}", { path: { topic: "parts" }, body: { partitions: 3 } });
  const append = (partition: number, data: number): Promise<unknown> =>
    client.append("parts", [{ data }], { partition });
  for (let data = 0; data < 6; data += 1) await append(0, data);
  for (let data = 0; data < 2; data += 1) await append(1, data);
  let sessions = 0;
  const cutting: typeof globalThis.fetch = async (url, init) => {
    const answer = await fetch(url, init);
    if (init?.method === "POST") sessions += 1;
    if (!String(url).includes("/v0/watch/") || answer.body === null) return answer;
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    let frames = 0;
    const body = new ReadableStream<string>({
      async pull(controller) {
        while (!text.includes("\n\n")) {
          const { done, value } = await reader.read();
          if (done) return controller.close();
          text += value;
        }
        const end = text.indexOf("\n\n") + 2;
        controller.enqueue(text.slice(0, end).replace(/^id: .*\n/m, ""));
        text = text.slice(end);
        if ((frames += 1) > 3 * sessions) {
          controller.close();
          await reader.cancel();
        }
      },
    });
    return new Response(body.pipeThrough(new TextEncoderStream()), { status: answer.status });
  };
  const flaky = new TopicsClient(broker.url, { fetch: cutting, retry: { baseMs: 1, capMs: 2 } });
  const found: unknown[][] = [[], [], []];
  for await (const event of flaky.watch({ parts: { partitions: [0, 1, 2], from_seq: 0 } }, { limit: 1 })) {
    found[(event.event !== "error" && event.data.partition) || 0]?.push(...dataOf(event));
    if (found.flat().length >= 8) break;
  }
  assert.deepEqual(found, [[0, 1, 2, 3, 4, 5], [0, 1], []]);
  assert.ok(sessions > 1);
});

test("a watch continues after the id of another one", async () => {
  await client.append("ids", [1, 2, 3].map((data) => ({ data })));
  let id = "";
  for await (const event of client.watch({ ids: { from_seq: 0 } }, { limit: 1 })) {
    id = event.event === "record" ? (event.id ?? "") : id;
    break;
  }
  const found: unknown[] = [];
  for await (const event of client.watch("ids", { last_event_id: id })) {
    found.push(...dataOf(event));
    if (found.length >= 2) break;
  }
  assert.deepEqual(found, [2, 3]);
});

test("losses and deletions are told", async () => {
  await client.append("capped", [1, 2, 3].map((data) => ({ data })));
  await client.request("put", "/v0/topics/{topic}", { path: { topic: "capped" }, body: { cap_records: 1 } });
  const events: WatchEvent[] = [];
  for await (const event of client.watch({ capped: { from_seq: 0 } })) {
    events.push(event);
    if (event.event !== "caught-up") continue;
    await client.request("delete", "/v0/topics/{topic}", { path: { topic: "capped" } });
  }
  assert.deepEqual(events.map((each) => each.event), ["tombstone", "record", "caught-up", "topic-deleted"]);
});

test("what cannot be watched is an error", async () => {
  await assert.rejects(client.watch("nowhere").next(), (error: ApiError) => error.code === "topic_not_found");
  await assert.rejects(client.watch([]).next(), TypeError);
});

test("a watch ends with its signal", async () => {
  await client.append("still", [{ data: 1 }]);
  const signal = AbortSignal.timeout(100);
  await assert.rejects(async () => {
    for await (const event of client.watch("still", { signal })) assert.notEqual(event.event, "record");
  }, { name: "TimeoutError" });
});
