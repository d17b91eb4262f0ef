// When to try again, and how long to wait first.
//
// Waits are random between 0 and a doubling limit (full jitter), so that clients that failed together do not return
// together. The wait that the broker asks for (Retry-After) comes before that.
import { ApiError, type TopicsError } from "./errors.js";

/** `totalMs` 0: never try again. It must stay below a topic's idempotency_window_ms (120 s unless set otherwise). */
export interface RetryPolicy {
  readonly totalMs: number;
  readonly baseMs: number;
  readonly capMs: number;
}

export const RETRY: RetryPolicy = { totalMs: 60_000, baseMs: 50, capMs: 5_000 };

/** The wait in ms after that many failed tries. */
export function backoffMs(policy: RetryPolicy, tries: number, error: TopicsError): number {
  const bound = Math.min(policy.capMs, policy.baseMs * 2 ** Math.min(tries - 1, 30));
  return (error instanceof ApiError ? error.retryAfterMs : 0) + bound * Math.random();
}

/** Counts the failures of something endless (a watch, a worker). */
export class Failures {
  #tries = 0;
  #since = 0;

  constructor(readonly policy: RetryPolicy) {}

  /** Something has arrived: failures from here on are counted from zero. */
  clear(): void {
    this.#tries = 0;
  }

  /** The wait in ms before the next try. Throws the error if there should be none. */
  after(error: TopicsError, forever = false): number {
    const now = performance.now();
    if (this.#tries === 0) this.#since = now;
    this.#tries += 1;
    const wait = backoffMs(this.policy, this.#tries, error);
    const isLate = !forever && now - this.#since + wait > this.policy.totalMs;
    if (!error.transient || this.policy.totalMs <= 0 || isLate) throw error;
    return wait;
  }
}
