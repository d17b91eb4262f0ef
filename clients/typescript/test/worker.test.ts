import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { GiveBack, LeaseLost, TopicsClient, Worker, WorkerStopped, type Job } from "../src/index.js";
import { Broker } from "./broker.js";

let broker: Broker;
let client: TopicsClient;
before(async () => {
  broker = await Broker.start();
  client = new TopicsClient(broker.url, { retry: { baseMs: 5, capMs: 50 } });
});
after(() => broker.end());

async function queue(topic: string, count: number, settings = {}): Promise<void> {
  await client.request("put", "/v0/topics/{topic}", { path: { topic }, body: { type: "queue", ...settings } });
  await client.append(topic, Array.from({ length: count }, (_, data) => ({ data })));
}

async function figures(topic: string): Promise<typeof DONE> {
  const { count, queue } = await client.request("get", "/v0/topics/{topic}", { path: { topic } });
  assert.ok(queue);
  return { count, ready: queue.ready, in_flight: queue.in_flight, dead_lettered: queue.dead_lettered };
}

async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await holds())) await sleep(5);
}

const DONE = { count: 0, ready: 0, in_flight: 0, dead_lettered: 0 };
const PATIENCE = { timeout: 120_000 };

test("a handler slower than its lease does its job once", PATIENCE, async () => {
  await queue("slow", 3, { lease_ms: 2000, max_deliveries: 2, dead_letter: "slow-dead" });
  const begun: Job<number>[] = [];
  const others: Worker<number>[] = [1, 2].map(() => new Worker<number>(client, "slow", async (job) => {
    begun.push(job);
    await sleep(6000);  // long leases: renewals may come late on a machine that others use
  }, { concurrency: 2 }));
  const running = others.map((each) => each.run());
  await until(async () => (await figures("slow")).count === 0);
  await Promise.all([...others.map((each) => each.stop()), ...running]);
  assert.deepEqual(begun.map((job) => job.data).sort(), [0, 1, 2]);
  assert.ok(begun.every((job) => job.deliveries === 1));
  assert.deepEqual(await figures("slow"), DONE);
});

test("a lost lease aborts the handler, and its outcome is not sent", PATIENCE, async () => {
  await queue("lost", 1, { lease_ms: 2000 });
  const errors: unknown[] = [];
  const reasons: unknown[] = [];
  const posted: string[] = [];
  const recording = new TopicsClient(broker.url, {
    fetch: (url, init) => {
      posted.push(String(url).replace(/.*\//, ""));
      return fetch(url, init);
    },
  });
  const worker: Worker = new Worker(recording, "lost", async (job, { signal }) => {
    if (job.deliveries > 1) return;
    // Somebody gives it back in this worker's name, so that the broker deals it anew.
    await client.nack("lost", worker.node, [job]);
    await new Promise((done) => signal.addEventListener("abort", done));
    reasons.push(signal.reason);
    assert.ok(!posted.includes("ack"));
  }, { node: "w", onError: (error) => errors.push(error) });
  const running = worker.run();
  await until(async () => (await figures("lost")).count === 0);
  await worker.stop();
  await running;
  assert.ok(reasons[0] instanceof LeaseLost);
  assert.ok(errors[0] instanceof LeaseLost);
  assert.equal(errors.length, 1);
  assert.equal(posted.filter((each) => each === "ack").length, 1);
  assert.ok(!posted.includes("nack"));
});

test("concurrency is neither exceeded nor left unused", PATIENCE, async () => {
  await queue("many", 300);
  let most = 0;
  let now = 0;
  const seen = new Set<number>();
  const worker = new Worker<number>(client, "many", async (job) => {
    most = Math.max(most, (now += 1));
    await sleep(Math.random() * 5);
    seen.add(job.data);
    now -= 1;
  }, { concurrency: 16 });
  const running = worker.run();
  await until(async () => (await figures("many")).count === 0);
  await worker.stop();
  await running;
  assert.equal(seen.size, 300);
  assert.equal(most, 16);
  assert.deepEqual(await figures("many"), DONE);
});

test("a handler that throws gives its job back, as it says", PATIENCE, async () => {
  await queue("failing", 2, { max_deliveries: 2, dead_letter: "dead" });
  const errors: unknown[] = [];
  const worker = new Worker<number>(client, "failing", ({ data, deliveries }) => {
    if (data === 0) throw new Error("no such mailbox");
    if (deliveries <= 3) throw new GiveBack({ penalty: false, delay_ms: 10, reason: "later" });
  }, { onError: (error) => errors.push(String(error)) });
  const running = worker.run();
  await until(async () => (await figures("failing")).count === 0);
  await worker.stop();
  await running;
  assert.deepEqual(errors, ["Error: no such mailbox", "Error: no such mailbox"]);
  const { records } = await client.read<number>("dead");
  assert.deepEqual(records.map((each) => each.data), [0]);
  assert.equal((records[0]?.meta as Record<string, unknown>)["$dead_letter_reason"], "Error: no such mailbox");
});

test("a stop waits for the handlers, and gives back what takes too long", PATIENCE, async () => {
  await queue("stopping", 2);
  const reasons: unknown[] = [];
  let begun = 0;
  const worker = new Worker<number>(client, "stopping", async ({ data }, { signal }) => {
    begun += 1;
    if (data === 0) return void (await sleep(200));
    await new Promise((done) => signal.addEventListener("abort", done));
    reasons.push(signal.reason);
    await sleep(60_000, undefined, { ref: false });
  }, { concurrency: 2 });
  const running = worker.run();
  await until(() => begun === 2);
  await worker.stop({ graceMs: 400 });
  await running;
  assert.ok(reasons[0] instanceof WorkerStopped);
  assert.deepEqual(await figures("stopping"), { count: 1, ready: 1, in_flight: 0, dead_lettered: 0 });
  const { claimed } = await client.claim<number>("stopping", { node: "other" });
  assert.deepEqual(claimed.map((job) => job.data), [1]);
});

test("a stop of an idle worker is at once, and takes no job along", PATIENCE, async () => {
  await queue("idle", 0 + 1);
  const worker = new Worker(client, "idle", () => undefined);
  const running = worker.run();
  await until(async () => (await figures("idle")).count === 0);
  await until(async () => {
    const { queue } = await client.request("get", "/v0/topics/{topic}", { path: { topic: "idle" } });
    return queue?.waiting_claims === 1;
  });
  await worker.stop();
  await running;
  await client.append("idle", [{ data: 1 }]);
  assert.equal((await figures("idle")).ready, 1);
});

test("a worker outlives a killed broker, and acks no job twice", PATIENCE, async () => {
  await queue("kills", 200, { leases_durable: true, lease_ms: 2000, durability: "fsync" });
  const done: number[] = [];
  const worker = new Worker<number>(client, "kills", async ({ data }) => {
    await sleep(5);
    done.push(data);
  }, { concurrency: 8 });
  const running = worker.run();
  await until(() => done.length > 50);
  await broker.kill();
  await broker.start();
  await until(async () => (await figures("kills").catch(() => undefined))?.count === 0);
  await worker.stop();
  await running;
  assert.equal(new Set(done).size, 200);
  assert.deepEqual(await figures("kills"), DONE);
});

test("a broker that is frozen past the lease costs the lease, and the job is done again", PATIENCE, async () => {
  await queue("frozen", 1, { lease_ms: 300 });
  const reasons: unknown[] = [];
  let begun = 0;
  const impatient = new TopicsClient(broker.url, { timeoutMs: 200, retry: { baseMs: 5, capMs: 50 } });
  const worker = new Worker(impatient, "frozen", async (_, { signal }) => {
    if ((begun += 1) > 1) return;
    broker.signal("SIGSTOP");
    await new Promise((done) => signal.addEventListener("abort", done));
    reasons.push(signal.reason);
    broker.signal("SIGCONT");
  });
  const running = worker.run();
  await until(async () => begun > 1 && (await figures("frozen")).count === 0);
  await worker.stop();
  await running;
  assert.ok(reasons[0] instanceof LeaseLost);
});

test("an ack that waits for the broker does not cost the leases of other jobs", PATIENCE, async () => {
  await queue("outage", 2, { lease_ms: 2000 });
  let isDown = false;
  const calls: string[] = [];
  const deaf = new TopicsClient(broker.url, {
    retry: { baseMs: 5, capMs: 50 },
    fetch: (url, init) => {
      const name = String(url).replace(/.*\//, "");
      calls.push(name);
      // Only acks find no broker for a while, for longer than a lease.
      return isDown && name === "ack" ? Promise.reject(new TypeError("no line")) : fetch(url, init);
    },
  });
  const lost: unknown[] = [];
  const worker = new Worker<number>(deaf, "outage", async ({ data }) => {
    isDown = true;
    if (data === 0) return;
    await sleep(5000);
    isDown = false;
  }, { concurrency: 2, onError: (error) => lost.push(error) });
  const running = worker.run();
  await until(async () => (await figures("outage")).count === 0);
  await worker.stop();
  await running;
  assert.deepEqual(lost, []);
  assert.ok(calls.filter((name) => name === "extend").length >= 4);
});

test("a job that fails waits although its queue has no backoff", PATIENCE, async () => {
  await queue("patient", 1);
  const begun: number[] = [];
  const worker = new Worker(client, "patient", ({ deliveries }) => {
    begun.push(Date.now());
    if (deliveries === 1) throw new Error("not yet");
  });
  const running = worker.run();
  await until(async () => (await figures("patient")).count === 0);
  await worker.stop();
  await running;
  assert.equal(begun.length, 2);
  assert.ok(begun[1]! - begun[0]! >= 790);
});

test("what no retry helps against ends the worker", PATIENCE, async () => {
  await client.append("log", [{ data: 1 }]);
  await assert.rejects(new Worker(client, "log", () => undefined).run(), { name: "ApiError", code: "not_a_queue" });
  await assert.rejects(new Worker(client, "no", () => undefined).run(), { name: "ApiError", code: "topic_not_found" });
  assert.throws(() => new Worker(client, "log", () => undefined, { concurrency: 0 }), RangeError);
});
