// A client of one broker. Requests and answers have the fields of the API, under the names of the API.
import type { components, paths } from "./generated/api.js";
import { LeaseLost, RecordsLost, type Tombstone } from "./errors.js";
import { Transport, type Call, type ClientOptions } from "./transport.js";
import { watch, type WatchEvent, type WatchOptions, type WatchTopics } from "./watch.js";
import { randomKey } from "./waiting.js";

type Schemas = components["schemas"];
type Signal = { signal?: AbortSignal | null };

export type Data<T> = { data: T };
/** A record as it is read; `T` is what the program takes its data for. */
export type StoredRecord<T = unknown> = Omit<Schemas["Record"], "data"> & Data<T>;
export type NewRecord = Schemas["AppendRecord"];
export type AppendOptions = Omit<Schemas["AppendRequest"], "records"> & Signal & { partition?: number };
export type ReadOptions = Schemas["DiffRequest"] & Signal & { partition?: number };
export type ReadAnswer<T = unknown> = Omit<Schemas["DiffAnswer"], "records"> & { records: StoredRecord<T>[] };
/** A claimed job; `T` is what the program takes its data for. */
export type Job<T = unknown> = Omit<Schemas["ClaimedJob"], "data"> & Data<T>;
export type ClaimOptions = Schemas["ClaimRequest"] & Signal;
export type ClaimAnswer<T = unknown> = Omit<Schemas["ClaimAnswer"], "claimed"> & { claimed: Job<T>[] };
/** A claimed job, or one by its seq alone: then any lease of the node counts. */
export type Held = Pick<Schemas["ClaimedJob"], "$seq" | "lease_id"> | number;
export type RedriveOptions = Schemas["RedriveRequest"] & Signal;
export type NackOptions = Omit<Schemas["NackRequest"], "node" | "seqs" | "lease_ids">;
/** `skipLost`: leases that are lost are listed in `skipped`; otherwise they are an error, once the others are done. */
export type SettleOptions = Signal & { skipLost?: boolean };

type Method = "get" | "put" | "post" | "patch" | "delete";
type PathsOf<M extends Method> = {
  [P in keyof paths]: paths[P][M] extends { responses: unknown } ? P : never;
}[keyof paths];
type Given<O> = Signal &
  (O extends { parameters: { path: infer X } } ? { path: X } : { path?: undefined }) &
  (O extends { parameters: { query?: infer X } } ? { query?: X } : unknown) &
  (O extends { requestBody: { content: { "application/json": infer X } } }
    ? { body: X }
    : O extends { requestBody?: { content: { "application/json": infer X } } }
      ? { body?: X }
      : unknown);
type Answered<O> = O extends { responses: { 200: { content: { "application/json": infer X } } } } ? X : unknown;

/** Talks to one broker. Fields of requests and answers have the names of the API. */
export class TopicsClient {
  readonly transport: Transport;

  /** `url`: of the broker, such as `https://broker.example.com`. */
  constructor(url: string, options: ClientOptions = {}) {
    this.transport = new Transport(url, options);
  }

  /**
   * Any operation of the API, by its method and path. Reads and settings are repeated after a failure; a POST only when
   * it was surely not done.
   */
  async request<M extends Method, P extends PathsOf<M>>(
    method: M,
    path: P,
    given: Given<paths[P][M]>,
  ): Promise<Answered<paths[P][M]>> {
    const { path: names = {}, query, body, signal } = given as {
      path?: Record<string, string | number>;
      query?: Record<string, unknown>;
      body?: unknown;
      signal?: AbortSignal | null;
    };
    const target = String(path).replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(names[name] ?? ""));
    const call: Call = { method: method.toUpperCase(), path: target, query, body, signal, isSafe: method !== "post" };
    return (await this.transport.call(call)) as Answered<paths[P][M]>;
  }

  /**
   * Append records, all or none. Without an `idempotency_key` a random one is sent, so that a repetition after a lost
   * answer stores nothing twice.
   */
  async append(
    topic: string,
    records: readonly NewRecord[],
    { signal, partition, ...fields }: AppendOptions = {},
  ): Promise<Schemas["AppendAnswer"]> {
    const body = { ...fields, idempotency_key: fields.idempotency_key || randomKey(), records };
    return this.#post(topic, "", body, { signal, query: { partition } });
  }

  /** One page of records after `from_seq`. Continue with `next_from_seq`. */
  async read<T = unknown>(topic: string, { signal, partition, ...body }: ReadOptions = {}): Promise<ReadAnswer<T>> {
    return this.#post(topic, "/diff", body, { signal, query: { partition }, waitMs: body.wait_ms ?? 0 });
  }

  /**
   * All records after `from_seq` that exist now, page by page. A loss rejects with RecordsLost, unless `onLoss`
   * accepts it: then reading continues after it.
   */
  async *records<T = unknown>(
    topic: string,
    { onLoss, ...options }: ReadOptions & { onLoss?: (tombstone: Tombstone) => void } = {},
  ): AsyncGenerator<StoredRecord<T>, void, undefined> {
    for (let from_seq = options.from_seq ?? 0; ; ) {
      const page = await this.read<T>(topic, { ...options, from_seq });
      if (page.tombstone !== null) {
        if (onLoss === undefined) throw new RecordsLost(page.tombstone);
        onLoss(page.tombstone);
      }
      yield* page.records;
      if (page.caught_up) return;
      from_seq = page.next_from_seq;
    }
  }

  /** Events as they arrive, from now on or from where each topic starts, also over restarts of the broker. */
  watch(topics: WatchTopics, options: WatchOptions = {}): AsyncGenerator<WatchEvent, void, undefined> {
    return watch(this.transport, topics, options);
  }

  /** Lease jobs. Without an `attempt_key` a random one is sent, so that a repetition returns the same jobs. */
  async claim<T = unknown>(topic: string, { signal, ...fields }: ClaimOptions): Promise<ClaimAnswer<T>> {
    const body = { ...fields, attempt_key: fields.attempt_key || randomKey() };
    return this.#post(topic, "/claim", body, { signal, waitMs: fields.wait_ms ?? 0 });
  }

  /** Ack jobs that are done: they are deleted permanently. */
  async ack(
    topic: string,
    node: string,
    jobs: readonly Held[],
    options: SettleOptions = {},
  ): Promise<Schemas["AckAnswer"]> {
    return this.#settle(topic, "/ack", { node, ...heldBy(jobs) }, options);
  }

  /** Give jobs back. */
  async nack(
    topic: string,
    node: string,
    jobs: readonly Held[],
    { skipLost, signal, ...fields }: NackOptions & SettleOptions = {},
  ): Promise<Schemas["NackAnswer"]> {
    return this.#settle(topic, "/nack", { node, ...heldBy(jobs), ...fields }, { skipLost, signal });
  }

  /** Make leases end `lease_ms` from now. */
  async extend(
    topic: string,
    node: string,
    jobs: readonly Held[],
    lease_ms: number,
    options: SettleOptions = {},
  ): Promise<Schemas["ExtendAnswer"]> {
    return this.#settle(topic, "/extend", { node, ...heldBy(jobs), lease_ms }, options);
  }

  /**
   * Move dead letters back into their queue, or only those with these `seqs` of the dead letter topic. Repeat it until
   * `remaining` is 0. A call that may have been done is not repeated: it would move as many jobs again.
   */
  async redrive(topic: string, { signal, ...body }: RedriveOptions = {}): Promise<Schemas["RedriveAnswer"]> {
    const waitMs = body.rate_per_s && !body.dry_run ? (1000 * (body.max ?? 1000)) / body.rate_per_s : 0;
    return this.#post(topic, "/redrive", body, { signal, waitMs, isSafe: body.dry_run === true });
  }

  async #settle<A extends { skipped: number[] }>(
    topic: string,
    path: string,
    body: unknown,
    { skipLost, signal }: { skipLost?: boolean | undefined; signal?: AbortSignal | null | undefined },
  ): Promise<A> {
    const report = { perhapsDone: false };
    const answer = await this.#post<A>(topic, path, body, { signal, report });
    // After a repetition the outcome is uncertain: the first call may have ended the leases, and its answer was lost.
    const isSure = path === "/extend" || !report.perhapsDone;
    if (answer.skipped.length > 0 && isSure && skipLost !== true) throw new LeaseLost(answer.skipped);
    return answer;
  }

  async #post<A>(topic: string, path: string, body: unknown, call: Partial<Call>): Promise<A> {
    const target = `/v0/topics/${encodeURIComponent(topic)}${path}`;
    return (await this.transport.call({ isSafe: true, ...call, method: "POST", path: target, body })) as A;
  }
}

function heldBy(jobs: readonly Held[]): { seqs: number[]; lease_ids: string[] } {
  return {
    seqs: jobs.map((job) => (typeof job === "number" ? job : job.$seq)),
    lease_ids: jobs.map((job) => (typeof job === "number" ? "" : job.lease_id)),
  };
}

/** The bytes of a payload that a program appended raw, `{"$base64": "…"}`; undefined for any other. */
export function bytesOf(data: unknown): Uint8Array | undefined {
  const text = typeof data === "object" && data !== null && "$base64" in data ? data.$base64 : undefined;
  if (typeof text !== "string") return undefined;
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}
