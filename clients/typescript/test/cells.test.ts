// A set of three cells behind a gateway: cells are killed while their topics are watched.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { TopicsClient, type WatchEvent } from "../src/index.js";
import { Broker } from "./broker.js";

const CELLS = 3;
/** As long as a busy machine needs to start a cell again. */
const PATIENT = { retry: { totalMs: 240_000 }, timeoutMs: 120_000 };

let broker: Broker;
let client: TopicsClient;
before(async () => {
  broker = await Broker.start(CELLS);
  client = new TopicsClient(broker.url, PATIENT);
});
after(() => broker.end());

type Seen = Map<string, unknown[]>;

const note = (seen: Seen, event: WatchEvent): void => {
  assert.ok(event.event !== "tombstone" && event.event !== "topic-deleted", JSON.stringify(event));
  if (event.event !== "record") return;
  const { topic, partition = 0, records } = event.data;
  const key = `${topic}#${partition}`;
  seen.set(key, [...(seen.get(key) ?? []), ...records.map((each) => each.data)]);
};

const count = (seen: Seen): number => [...seen.values()].reduce((sum, each) => sum + each.length, 0);

test("a watch of topics in all cells goes on over killed cells", { timeout: 300_000 }, async () => {
  const topics = Array.from({ length: 6 }, (_, number) => `t${number}`);
  for (const topic of topics) await client.append(topic, [{ data: 0 }]);
  const seen: Seen = new Map();
  const all = 12;
  const watching = (async () => {
    for await (const event of client.watch(Object.fromEntries(topics.map((name) => [name, { from_seq: 0 }])))) {
      note(seen, event);
      if (count(seen) >= all * topics.length) return;
    }
  })();
  for (let number = 1; number < all; number += 1) {
    if (number % 3 === 0) await broker.killCell((number / 3) % CELLS);
    await Promise.all(topics.map((topic) => client.append(topic, [{ data: number }])));
  }
  await watching;
  const expected = Array.from({ length: all }, (_, number) => number);
  assert.deepEqual(seen, new Map([...seen.keys()].map((key) => [key, expected])));
  assert.equal(seen.size, topics.length);
});

test("a watch of all partitions of a topic goes on over killed cells", { timeout: 300_000 }, async () => {
  await client.request("put", "/v0/topics/{topic}", { path: { topic: "parts" }, body: { partitions: 4 } });
  const append = (partition: number, data: number): Promise<unknown> =>
    client.append("parts", [{ data }], { partition });
  for (const data of [-2, -1]) await append(3, data); // the positions differ
  const seen: Seen = new Map();
  const events = client.watch({ parts: { partitions: [0, 1, 2, 3] } });
  note(seen, (await events.next()).value as WatchEvent); // it has begun: what follows is new
  const watching = (async () => {
    for await (const event of events) {
      note(seen, event);
      if (count(seen) >= 24) return;
    }
  })();
  for (let number = 0; number < 6; number += 1) {
    for (const partition of [0, 1, 2, 3]) await append(partition, number);
    if (number % 2 === 0) await broker.killCell((number / 2) % CELLS);
  }
  await watching;
  assert.deepEqual([...seen.keys()].sort(), [0, 1, 2, 3].map((partition) => `parts#${partition}`));
  for (const found of seen.values()) assert.deepEqual(found, [0, 1, 2, 3, 4, 5]);
});
