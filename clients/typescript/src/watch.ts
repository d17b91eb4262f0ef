// Watching topics: a session, its stream, and what happens when either ends.
// Sessions are in the broker's memory. After a restart there is none, and a new one continues at the reader's position:
// the id of the last event has it for every topic.
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
    } finally {
      clearTimeout(silence);
      connection.end();
    }
    await sleep(wait, signal);
  }
}

class Watching {
  readonly #starts: Map<string, WatchStart>;
  /** Topics of which this connection returns nothing more. */
  readonly #stopped = new Set<string>();
  #url: string | undefined;
  #isKnown = false;
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
    const body = { ...this.fields, topics: Object.fromEntries(this.#starts) };
    const query = { lenient: this.#isKnown || undefined };
    const call = { method: "POST", path: "/v0/watch", query, body, signal, isSafe: true };
    const made = (await this.transport.call(call)) as Schemas["WatchAnswer"];
    for (const [name, start] of this.#starts) {
      const at = made.topics[name];
      if (at === undefined) {
        this.#starts.delete(name);
        yield { event: "topic-deleted", data: { topic: name, head_seq: start.from_seq ?? 0, reason: "deleted" } };
      } else if (!this.#isKnown) {
        this.#starts.set(name, { ...this.#where(start), from_seq: at.from_seq });
      }
    }
    this.#isKnown = true;
    this.#url = made.stream_url;
  }

  async stream(signal: AbortSignal): Promise<ReadableStream<Uint8Array>> {
    this.#stopped.clear();
    this.#again = undefined;
    const headers: Record<string, string> = { Accept: "text/event-stream" };
    if (this.lastId !== "") headers["Last-Event-ID"] = this.lastId;
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
      this.#move(event);
    }
    yield event;
  }

  #move(event: Exclude<WatchEvent, { event: "error" }>): void {
    const start = this.#starts.get(event.data.topic);
    if (start === undefined) return;
    if (event.event === "topic-deleted") this.#starts.delete(event.data.topic);
    else if (event.event === "record") start.from_seq = event.data.to_seq;
    else if (event.event === "tombstone") start.from_seq = event.data.gap_to;
  }

  #stop(data: Schemas["StreamFailure"]): void {
    const status = typeof data.code === "number" ? data.code : 503;
    const error = new ApiError(data.error, status, data.reason, data.detail);
    if (data.topic !== undefined) this.#stopped.add(data.topic);
    if (data.topic === undefined || this.#stopped.size >= this.#starts.size) throw error;
    if (error.transient) this.#again ??= { at: performance.now() + AGAIN_MS, error };
  }

  hasLostSession(error: TopicsError): boolean {
    if (!(error instanceof ApiError) || error.code !== "not_found" || this.#url === undefined) return false;
    this.#url = undefined;
    return true;
  }

  #where(start: WatchStart): WatchStart {
    return start.partition === undefined ? {} : { partition: start.partition };
  }
}
