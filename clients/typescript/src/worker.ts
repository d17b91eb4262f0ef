// A worker: claims the jobs that it can begin now, renews their leases while they are done, and acks them.
//
//   const worker = new Worker(client, "mails", async (job, { signal }) => send(job.data, signal), { concurrency: 8 });
//   process.once("SIGTERM", () => worker.stop());
//   await worker.run();
//
// A handler that returns acks its job, one that throws gives it back. A lease is renewed for as long as its job is
// being done, however long that is. When a lease is lost all the same, the handler's signal is aborted, and its outcome
// is not sent: somebody else may have the job. A process that dies renews nothing, so its jobs come back by lease end.
import type { ClaimAnswer, ClaimOptions, Job, NackOptions, TopicsClient } from "./client.js";
import { ApiError, LeaseLost, TopicsError } from "./errors.js";
import { Failures } from "./retry.js";
import { Linked, randomKey, sleep } from "./waiting.js";

/** What a handler knows of its job beside the job. */
export interface JobContext {
  /** Aborted when the lease is lost (its reason is a LeaseLost) and at the end of a stop (a WorkerStopped). */
  readonly signal: AbortSignal;
}

/** Does a job. Returning acks it, throwing gives it back. */
export type Handler<T> = (job: Job<T>, context: JobContext) => unknown;

export interface WorkerOptions {
  /** The name of the worker. Default: random, because two workers with one name could ack each other's jobs. */
  node?: string;
  /** The most jobs at a time. Default: 1. */
  concurrency?: number;
  /** How long others wait for the jobs of a process that died. Default: the queue's setting at the start. */
  lease_ms?: number;
  /** Called with errors of handlers, lost leases, and failed calls. */
  onError?: (error: unknown, job: Job | undefined) => void;
}

/** Thrown by a handler to give the job back with these fields. */
export class GiveBack extends Error {
  override name = "GiveBack";

  constructor(readonly fields: NackOptions) {
    super(fields.reason ?? "given back");
  }
}

/** The reason of a handler's signal when the stop of the worker no longer waits for it. */
export class WorkerStopped extends Error {
  override name = "WorkerStopped";
}

const WAIT_MS = 20_000;
/** How long a job waits after its first failure, and at most, if the queue has no backoff. */
const FIRST_WAIT_MS = 1_000;
const LONGEST_WAIT_MS = 3_600_000;
/** A lease is renewed when this share of it has passed, and tried again this share later if that fails. */
const RENEW_AT = 1 / 3;
const AGAIN_AFTER = 1 / 10;
/** How long a stop tries to give jobs back. Leases that it cannot end expire. */
const GIVE_BACK_MS = 5_000;
const MAX_SEQS = 1000;
const MAX_REASON_BYTES = 1024;

/** A job that is being done: its lease ends at `endsAt` and is renewed at `renewAt`, both by performance.now(). */
interface Doing<T> {
  readonly job: Job<T>;
  readonly linked: Linked;
  endsAt: number;
  renewAt: number;
  /** Its handler has ended, and its outcome is being sent: the answer says whether the lease was still valid. */
  isSettling: boolean;
  /** The lease is lost, or the job was given back at a stop: its handler's outcome is not sent. */
  isOver: boolean;
}

/**
 * Claims the jobs of a queue that it can begin now, renews their leases while they are done, and settles them. When a
 * lease is lost, the handler's signal is aborted, and its outcome is not sent. The jobs of a process that died come back
 * at the end of their leases.
 */
export class Worker<T = unknown> {
  readonly node: string;
  readonly #concurrency: number;
  readonly #options: WorkerOptions;
  readonly #doing = new Set<Doing<T>>();
  readonly #claiming = new AbortController();
  readonly #acks: Batch<Doing<T>>;
  #leaseMs = 0;
  #waitsItself = false;
  #renewing: ReturnType<typeof setTimeout> | undefined;
  #freed: (() => void) | undefined;
  #running: Promise<void> | undefined;

  constructor(
    readonly client: TopicsClient,
    readonly topic: string,
    readonly handler: Handler<T>,
    options: WorkerOptions = {},
  ) {
    this.node = options.node ?? `worker-${randomKey().slice(0, 12)}`;
    this.#concurrency = options.concurrency ?? 1;
    this.#options = options;
    if (!Number.isSafeInteger(this.#concurrency) || this.#concurrency < 1) {
      throw new RangeError("concurrency: a whole number from 1.");
    }
    this.#acks = new Batch((done) => this.#ack(done));
  }

  /** How many jobs are being done. */
  get active(): number {
    return this.#doing.size;
  }

  /** Works until `stop`, or rejects with an error that no retry resolves, after the running handlers have ended. */
  run(): Promise<void> {
    this.#running ??= this.#run();
    return this.#running;
  }

  /**
   * Claims no more, and waits for the running handlers. After `graceMs` their signals are aborted and their jobs
   * given back; the delivery does not count.
   */
  async stop({ graceMs = 30_000 }: { graceMs?: number } = {}): Promise<void> {
    this.#claiming.abort(new WorkerStopped("The worker stops."));
    const late = setTimeout(() => void this.#giveBackAll(), graceMs);
    try {
      await this.#running?.catch(() => undefined); // `run` has rejected with it
    } finally {
      clearTimeout(late);
    }
  }

  async #run(): Promise<void> {
    try {
      const { lease_ms, retry_backoff_ms } = await this.#configOfQueue();
      this.#leaseMs = this.#options.lease_ms ?? lease_ms;
      this.#waitsItself = !retry_backoff_ms;
      await this.#claimUntilStopped();
    } catch (error) {
      if (!this.#claiming.signal.aborted || error !== this.#claiming.signal.reason) throw error;
    } finally {
      while (this.#doing.size > 0) await this.#oneIsFree();
      await this.#acks.idle();
      clearTimeout(this.#renewing);
    }
  }

  async #claimUntilStopped(): Promise<void> {
    const failures = new Failures(this.client.transport.retry);
    const stopping = this.#claiming.signal;
    while (!stopping.aborted) {
      const free = this.#concurrency - this.#doing.size;
      if (free <= 0) {
        await this.#oneIsFree();
        continue;
      }
      const attempt_key = randomKey();
      const began = performance.now();
      try {
        const fields = { max: Math.min(free, MAX_SEQS), wait_ms: WAIT_MS, attempt_key, signal: stopping };
        const claimed = await this.#claim(fields);
        failures.clear();
        // About when the leases began, on the clock of this process. The broker decides whether a lease is still valid.
        const dealtAt = began + claimed.performance.server_total_ms;
        for (const job of claimed.claimed) this.#begin(job, dealtAt);
      } catch (error) {
        if (stopping.aborted) return this.#giveBackUnseen(attempt_key);
        if (!(error instanceof TopicsError)) throw error;
        const wait = failures.after(error, true);
        this.#report(error);
        await sleep(wait, stopping).catch(() => undefined);
      }
    }
  }

  #claim(fields: Omit<ClaimOptions, "node">): Promise<ClaimAnswer<T>> {
    return this.client.claim<T>(this.topic, { node: this.node, lease_ms: this.#leaseMs, ...fields });
  }

  async #configOfQueue() {
    const { signal } = this.#claiming;
    const state = await this.client.request("get", "/v0/topics/{topic}", { path: { topic: this.topic }, signal });
    return state.config;
  }

  /** Nobody waited for the answer of the last claim. Its jobs go back now, not at the end of their leases. */
  async #giveBackUnseen(attempt_key: string): Promise<void> {
    try {
      const signal = AbortSignal.timeout(GIVE_BACK_MS);
      const { claimed } = await this.#claim({ max: 1, attempt_key, signal });
      if (claimed.length > 0) {
        await this.client.nack(this.topic, this.node, claimed, { penalty: false, skipLost: true, signal });
      }
    } catch (error) {
      this.#report(error);
    }
  }

  // -- doing ----------------------------------------------------------------------------------------------------------

  #begin(job: Job<T>, claimedAt: number): void {
    const [endsAt, renewAt] = [claimedAt + this.#leaseMs, claimedAt + this.#leaseMs * RENEW_AT];
    const linked = new Linked(undefined);
    const doing: Doing<T> = { job, linked, endsAt, renewAt, isSettling: false, isOver: false };
    this.#doing.add(doing);
    this.#renewInTime();
    void this.#do(doing).finally(() => {
      this.#doing.delete(doing);
      this.#freed?.();
    });
  }

  async #do(doing: Doing<T>): Promise<void> {
    const { job, linked } = doing;
    let failure: { error: unknown } | undefined;
    try {
      await this.handler(job, { signal: linked.signal });
    } catch (error) {
      failure = { error };
    }
    if (doing.isOver) return;
    doing.isSettling = true;
    try {
      if (failure === undefined) await this.#acks.add(doing);
      else await this.#nack(doing, failure.error);
    } catch (error) {
      this.#report(error, job);
    }
  }

  async #ack(done: readonly Doing<T>[]): Promise<void> {
    const held = done.filter((each) => !each.isOver);
    for (let at = 0; at < held.length; at += MAX_SEQS) {
      const part = held.slice(at, at + MAX_SEQS);
      try {
        await this.client.ack(this.topic, this.node, part.map((each) => each.job));
      } catch (error) {
        if (!(error instanceof LeaseLost)) throw error;
        for (const each of part) if (error.seqs.includes(each.job.$seq)) this.#lose(each);
      }
    }
  }

  async #nack({ job }: Doing<T>, error: unknown): Promise<void> {
    if (!(error instanceof GiveBack)) this.#report(error, job);
    const fields = error instanceof GiveBack ? error.fields : { reason: cut(String(error)), ...this.#wait(job) };
    await this.client.nack(this.topic, this.node, [job], fields);
  }

  /**
   * How long a job waits whose handler threw. A queue without a backoff gives it back at once, so that a job that
   * always fails would keep the worker busy: then it is 1 second, doubled with each delivery, up to an hour.
   */
  #wait({ deliveries }: Job<T>): { delay_ms?: number } {
    if (!this.#waitsItself) return {};
    const grown = FIRST_WAIT_MS * 2 ** Math.min(Math.max(deliveries, 1) - 1, 20);
    return { delay_ms: Math.round(Math.min(grown, LONGEST_WAIT_MS) * (1 - 0.2 * Math.random())) };
  }

  async #giveBackAll(): Promise<void> {
    const left = [...this.#doing].filter((each) => !each.isOver);
    for (const each of left) {
      each.isOver = true;
      each.linked.abort(new WorkerStopped("The worker stops, and does not wait any longer."));
    }
    try {
      const jobs = left.map((each) => each.job);
      const signal = AbortSignal.timeout(GIVE_BACK_MS);
      for (let at = 0; at < jobs.length; at += MAX_SEQS) {
        const part = jobs.slice(at, at + MAX_SEQS);
        await this.client.nack(this.topic, this.node, part, { penalty: false, skipLost: true, signal });
      }
    } catch (error) {
      this.#report(error);
    }
    for (const each of left) this.#doing.delete(each); // nobody waits for a handler that ignores its signal
    this.#freed?.();
  }

  #oneIsFree(): Promise<void> {
    return new Promise((resolve) => (this.#freed = resolve));
  }

  // -- leases ---------------------------------------------------------------------------------------------------------

  #renewInTime(): void {
    clearTimeout(this.#renewing);
    const held = [...this.#doing].filter((each) => !each.isOver);
    if (held.length === 0) return;
    const at = Math.min(...held.map((each) => each.renewAt));
    if (at === Infinity) return;
    this.#renewing = setTimeout(() => void this.#renew(), Math.max(0, at - performance.now()));
  }

  async #renew(): Promise<void> {
    const now = performance.now();
    const due = [...this.#doing].filter((each) => !each.isOver && each.renewAt <= now).slice(0, MAX_SEQS);
    if (due.length > 0) await this.#extend(due);
    this.#renewInTime();
  }

  async #extend(part: readonly Doing<T>[]): Promise<void> {
    const [began, leaseMs] = [performance.now(), this.#leaseMs];
    // No later than the end of the first of them: what is known by then decides.
    const ends = part.filter((each) => !each.isSettling).map((each) => each.endsAt);
    const call = new Linked(undefined);
    const timer = setTimeout(() => call.abort(undefined), Math.max(1, Math.min(...ends, began + leaseMs) - began));
    try {
      const jobs = part.map((each) => each.job);
      const options = { skipLost: true, signal: call.signal };
      const done = await this.client.extend(this.topic, this.node, jobs, leaseMs, options);
      const skipped = new Set(done.skipped);
      for (const each of part) {
        if (!skipped.has(each.job.$seq)) [each.endsAt, each.renewAt] = [began + leaseMs, began + leaseMs * RENEW_AT];
        else if (!each.isSettling) this.#lose(each);
        else each.renewAt = Infinity;
      }
    } catch (error) {
      const isFinal = error instanceof ApiError && !error.transient;
      for (const each of part) {
        const isLost = isFinal || performance.now() >= each.endsAt;
        each.renewAt = isLost ? Infinity : performance.now() + leaseMs * AGAIN_AFTER;
        if (isLost && !each.isSettling) this.#lose(each);
      }
      if (error instanceof TopicsError) this.#report(error);
    } finally {
      clearTimeout(timer);
    }
  }

  #lose(doing: Doing<T>): void {
    if (doing.isOver || !this.#doing.has(doing)) return;
    doing.isOver = true;
    const lost = new LeaseLost([doing.job.$seq]);
    doing.linked.abort(lost);
    this.#report(lost, doing.job);
  }

  #report(error: unknown, job?: Job<T>): void {
    this.#options.onError?.(error, job);
  }
}

/** Collects values that arrive during a call into the next call. */
class Batch<V> {
  #next: V[] = [];
  #waiting: Promise<void> | undefined;
  #last: Promise<void> = Promise.resolve();

  constructor(readonly send: (values: readonly V[]) => Promise<void>) {}

  /** Settles like the call that the value is sent with. */
  add(value: V): Promise<void> {
    this.#next.push(value);
    this.#waiting ??= this.#after(this.#last);
    return this.#waiting;
  }

  async #after(last: Promise<void>): Promise<void> {
    await last.catch(() => undefined);
    const values = this.#next;
    const current = this.#waiting;
    this.#next = [];
    this.#waiting = undefined;
    if (current !== undefined) this.#last = current;
    await this.send(values);
  }

  idle(): Promise<void> {
    return (this.#waiting ?? this.#last).catch(() => undefined);
  }
}

function cut(text: string): string {
  const bytes = new TextEncoder().encode(text);
  return bytes.length <= MAX_REASON_BYTES ? text : new TextDecoder().decode(bytes.slice(0, MAX_REASON_BYTES - 3));
}
