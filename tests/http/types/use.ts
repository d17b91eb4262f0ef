// Uses a broker through the types that openapi-typescript makes of its document. What may be left out is left out, what
// may be null is given as null, and what an answer may lack has to be looked for: each line with "@ts-expect-error"
// would be taken if the types said otherwise.
import createClient from "openapi-fetch";
import type { components, paths } from "./broker.js";

declare const process: { env: Record<string, string | undefined> };
const url = process.env["BROKER_URL"] ?? "";
const broker = createClient<paths>({ baseUrl: url });

type Answer<T> = { data?: T; error?: unknown; response: Response };

function got<T>(answer: Answer<T>): NonNullable<T> {
  if (answer.data === undefined || answer.data === null) {
    throw new Error(`${answer.response.status} ${JSON.stringify(answer.error)}`);
  }
  return answer.data;
}

const topic = (name: string) => ({ path: { topic: name } });

// Settings: none, some, and null where null is a value.
got(await broker.PUT("/v0/topics/{topic}", { params: topic("log"), body: {} }));
got(await broker.PUT("/v0/topics/{topic}", { params: topic("dead") }));
const made = got(await broker.PUT("/v0/topics/{topic}", { params: topic("queue"), body: { type: "queue", priority: null } }));
const lease: number = made.config.lease_ms;
got(await broker.PATCH("/v0/topics/{topic}", { params: topic("queue"), body: { dead_letter: "dead", max_deliveries: 2 } }));

// Records with data alone, and with null where a field may be left out.
const appended = got(await broker.POST("/v0/topics/{topic}", {
  params: topic("log"), body: { records: [{ data: { a: 1 } }, { data: null, tag: null, meta: null }] },
}));
const last: number = appended.last_seq;
got(await broker.POST("/v0/topics/{topic}", { params: topic("queue"), body: { records: [{ data: 1 }, { data: 2 }] } }));

const read = got(await broker.POST("/v0/topics/{topic}/diff", { params: topic("log"), body: { from_seq: 0 } }));
const tags: (string | undefined)[] = read.records.map(record => record.$tag ?? undefined);
const state = got(await broker.GET("/v0/topics/{topic}", { params: topic("queue") }));
const ready: number | undefined = state.queue?.ready;

// A job from its claim to its end.
const claim: components["schemas"]["ClaimRequest"] = { node: "worker" };
const claimed = got(await broker.POST("/v0/topics/{topic}/claim", { params: topic("queue"), body: { ...claim, max: 2 } }));
const seqs = claimed.claimed.map(job => job.$seq);
const acked = got(await broker.POST("/v0/topics/{topic}/ack", {
  params: topic("queue"), body: { node: "worker", seqs: seqs.slice(0, 1) },
}));
got(await broker.POST("/v0/topics/{topic}/nack", { params: topic("queue"), body: { node: "worker", seqs: seqs.slice(1) } }));

// A consumer, a router, lists with their parameters left out.
const consumer = { path: { topic: "log", consumer: "reader" } };
got(await broker.PUT("/v0/topics/{topic}/consumers/{consumer}", { params: consumer, body: {} }));
const consumed = got(await broker.POST("/v0/topics/{topic}/consumers/{consumer}/read", { params: consumer, body: {} }));
got(await broker.POST("/v0/topics/{topic}/consumers/{consumer}/commit", { params: consumer, body: { seq: last } }));
got(await broker.PUT("/v0/routers/{router}", {
  params: { path: { router: "r" } }, body: { source: "log", dest: "dead" },
}));
const names = got(await broker.GET("/v0/topics")).topics.map(each => each.topic).sort();
got(await broker.GET("/v0/topics", { params: { query: { prefix: "l" } } }));
got(await broker.POST("/v0/watch", { body: { topics: { log: {} } } }));

// A refusal is one of the document's.
const refused = await broker.GET("/v0/topics/{topic}", { params: topic("nowhere") });
const code: components["schemas"]["ErrorCode"] | undefined = refused.error?.error.code;

// @ts-expect-error: a claim names its node
const nameless: components["schemas"]["ClaimRequest"] = {};
// @ts-expect-error: an append has records
const empty: components["schemas"]["AppendRequest"] = {};
// @ts-expect-error: there is no such setting
const misspelled: components["schemas"]["TopicSettings"] = { max_deliveris: 3 };
// @ts-expect-error: a log has no queue
const sure: number = state.queue.ready;

// @ts-expect-error: there is no such code
const unknown: components["schemas"]["ErrorCode"] = "topic_not_fond";

// Events and messages: what kind they are says what they carry.
function seen(event: components["schemas"]["WatchEvent"]): number[] {
  if (event.event === "record") return event.data.records.map(record => record.$seq);
  // @ts-expect-error: no other event has records
  return event.data.records;
}
const watched: number[] = seen({ event: "record", id: "", data: { topic: "log", records: [{ $seq: 1, $ts: 0 }], from_seq: 0, to_seq: 1, head_seq: 1 } });
const command: components["schemas"]["SocketCommand"] = { op: "publish", topic: "log", records: [{ data: 1 }] };

void [nameless, empty, misspelled, sure, unknown, watched, command];
console.log(JSON.stringify({ lease, last, tags, ready, acked: acked.acked, read: consumed.records.length, names, code }));
