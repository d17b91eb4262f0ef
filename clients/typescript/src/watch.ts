// Watching topics: a session, its stream, and what happens when either ends.
// Sessions are in the broker's memory. After a restart there is none, and a new one continues at the reader's position:
// the id of the last event has it for every topic. Until an event has an id (in a set of cells, until each cell has sent
// one), a stream that breaks off is continued by a new session from the positions that the client has counted itself. A
// session has one start for all partitions of a topic, so it begins at the lowest, and what was there before is left out.
import { ApiError, ConnectionFailed, TopicsError } from "./errors.js";
import { eventsOf, type ServerSentEvent } from "./events.js";
import type { components } from "./generated/api.js";
import { Failures } from "./retry.js";
import { broken, type Transport } from "./transport.js";
import { Linked, sleep } from "./waiting.js";

type Schemas = components["schemas"];
/** What a watch tells: records, a gap, the end of what was there, a deleted topic, an error. */
export type WatchEvent = Schemas["WatchEvent"];
/** Where to start in a topic. */
export type WatchStart = Schemas["WatchStart"];
/** Names, to be watched from now on; or where to start in each: `{orders: {from_seq: 0}}`. */
export type WatchTopics = string | readonly string[] | Readonly<Record<string, WatchStart | null>>;
export type WatchOptions = Omit<Schemas["WatchRequest"], "topics"> & {
  /** The id of the last event that was handled: continue after it. */
  last_event_id?: string;
  signal?: AbortSignal | null;
};

/** Heartbeats come every 15 s unless set otherwise; the stream counts as dead after three without a byte. */
const HEARTBEAT_MS = 15_000;
const SILENT_HEARTBEATS = 3;
/** A topic that the broker cannot read for the moment is tried again this much later, with another connection. */
const AGAIN_MS = 5_000;

/** Events until every topic is deleted. Rejects with an error that cannot be retried, or with the reason of the signal. */
export async function* watch(
  transport: Transport,
  topics: WatchTopics,
  { signal, last_event_id, ...fields }: WatchOptions,
): AsyncGenerator<WatchEvent, void, undefined> {
  const watching = new Watching(transport, topics, fields, last_event_id ?? "");
  const failures = new Failures(transport.retry);
  while (watching.goesOn) {
    const connection = new Linked(signal);
    let silence: ReturnType<typeof setTimeout> | undefined;
    const alive = (): void => {
      clearTimeout(silence);
      const ms = SILENT_HEARTBEATS * (fields.heartbeat_ms || HEARTBEAT_MS);
      silence = setTimeout(() => connection.abort(new ConnectionFailed("The stream went silent.")), ms);
    };
    let wait: number;
    try {
      alive();
      yield* watching.session(connection.signal);
      for await (const event of eventsOf(await watching.stream(connection.signal), alive)) {
        failures.clear();
        yield* watching.take(event);
        if (!watching.goesOn) return;
      }
      throw new ConnectionFailed("The stream ended.");
    } catch (error) {
      const why = broken(error, connection.signal);
      if (signal?.aborted || !(why instanceof TopicsError)) throw why;
      wait = watching.hasLostSession(why) ? 0 : failures.after(why);
      watching.streamEnded();
    } finally {
      clearTimeout(silence);
      connection.end();
    }
    await sleep(wait, signal);
  }
}

type Told = Exclude<WatchEvent, { event: "error" }>;

class Watching {
  readonly #starts: Map<string, WatchStart>;
  /** By topic and partition: everything up to this seq has been returned. */
  readonly #positions = new Map<string, Map<number, number>>();
  /** Topics, or partitions, of which this connection returns nothing more. */
  readonly #stopped = new Set<string>();
  #url: string | undefined;
  #isKnown = false;
  /** The stream was opened without an id, so it may begin before the positions. */
  #isUnplaced = false;
  #again: { at: number; error: TopicsError } | undefined;

  constructor(
    readonly transport: Transport,
    topics: WatchTopics,
    readonly fields: Omit<Schemas["WatchRequest"], "topics">,
    private lastId: string,
  ) {
    const names = typeof topics === "string" ? [topics] : topics;
    const starts = Array.isArray(names) ? names.map((name: string) => [name, null] as const) : Object.entries(names);
    this.#starts = new Map(starts.map(([name, start]) => [name, { ...start }]));
    if (this.#starts.size === 0) throw new TypeError("There is nothing to watch.");
  }

  get goesOn(): boolean {
    return this.#starts.size > 0;
  }

  /** Makes a session if there is none, and returns the topics that were deleted meanwhile. */
  async *session(signal: AbortSignal): AsyncGenerator<WatchEvent, void, undefined> {
    if (this.#url !== undefined) return;
    const topics = [...this.#starts].map(([name, start]) => [name, this.#next(name, start)] as const);
    const body = { ...this.fields, topics: Object.fromEntries(topics) };
    const query = { lenient: this.#isKnown || undefined };
    const call = { method: "POST", path: "/v0/watch", query, body, signal, isSafe: true };
    const made = (await this.transport.call(call)) as Schemas["WatchAnswer"];
    for (const [name, start] of this.#starts) {
      const at = made.topics[name];
      if (at === undefined) {
        this.#starts.delete(name);
        const head_seq = this.#positions.get(name)?.values().next().value ?? start.from_seq ?? 0;
        yield { event: "topic-deleted", data: { topic: name, head_seq, reason: "deleted" } };
      } else if (!this.#isKnown) {
        const only = { partition: start.partition ?? start.partitions?.[0] ?? 0, from_seq: at.from_seq };
        const parts = at.partitions?.length ? at.partitions : [only];
        this.#positions.set(name, new Map(parts.map((each) => [each.partition, each.from_seq])));
      }
    }
    this.#isKnown = true;
    this.#url = made.stream_url;
  }

  async stream(signal: AbortSignal): Promise<ReadableStream<Uint8Array>> {
    this.#stopped.clear();
    this.#again = undefined;
    const headers: Record<string, string> = { Accept: "text/event-stream" };
    this.#isUnplaced = this.lastId === "";
    if (!this.#isUnplaced) headers["Last-Event-ID"] = this.lastId;
    return this.transport.open({ method: "GET", path: this.#url ?? "", headers, signal, isSafe: true });
  }

  /** The event for the caller. Throws the error that ends the connection. */
  *take(raw: ServerSentEvent): Generator<WatchEvent, void, undefined> {
    if (this.#again !== undefined && performance.now() >= this.#again.at) throw this.#again.error;
    const event = { event: raw.event, data: this.transport.event(raw.data) } as WatchEvent;
    if (event.event === "error") {
      this.#stop(event.data);
    } else {
      event.id = raw.id;
      this.lastId = raw.id || this.lastId;
      if (!this.#isNew(event)) return;
    }
    yield event;
  }

  /** Moves the position. False: the event has nothing that was not returned before, in which case it is cut down. */
  #isNew(event: Told): boolean {
    const { topic, partition = 0 } = event.data;
    if (event.event === "topic-deleted") {
      this.#starts.delete(topic);
      return true;
    }
    const positions = this.#positions.get(topic);
    if (positions === undefined) return true;
    const at = (this.#isUnplaced ? positions.get(partition) : undefined) ?? 0;
    if (event.event === "tombstone") {
      const { data } = event;
      if (data.reason !== "recreated") {
        if (data.gap_to <= at) return false;
        data.gap_from = Math.max(data.gap_from, at + 1);
      }
      positions.set(partition, data.gap_to);
    } else if (event.event === "record") {
      const { data } = event;
      if (data.to_seq <= at) return false;
      if (data.from_seq < at) {
        data.from_seq = at;
        data.records = data.records.filter((each) => each.$seq > at);
      }
      positions.set(partition, data.to_seq);
    }
    return true;
  }

  #stop(data: Schemas["StreamFailure"]): void {
    const status = typeof data.code === "number" ? data.code : 503;
    const error = new ApiError(data.error, status, data.reason, data.detail);
    if (data.topic !== undefined) this.#stopped.add(`${data.topic}#${data.partition ?? 0}`);
    const all = [...this.#starts.keys()].reduce((sum, name) => sum + (this.#positions.get(name)?.size ?? 1), 0);
    if (data.topic === undefined || this.#stopped.size >= all) throw error;
    if (error.transient) this.#again ??= { at: performance.now() + AGAIN_MS, error };
  }

  /** Without an id to continue from, the broker would continue after what it has sent, which may not have arrived. */
  streamEnded(): void {
    if (this.lastId === "") this.#url = undefined;
  }

  hasLostSession(error: TopicsError): boolean {
    if (!(error instanceof ApiError) || error.code !== "not_found" || this.#url === undefined) return false;
    this.#url = undefined;
    return true;
  }

  /** Where the next session begins in a topic. */
  #next(name: string, start: WatchStart): WatchStart {
    const positions = this.#positions.get(name);
    if (positions === undefined) return start;
    const { from_seq: _, tail: __, ...which } = start;
    return { ...which, from_seq: Math.min(...positions.values()) };
  }
}
