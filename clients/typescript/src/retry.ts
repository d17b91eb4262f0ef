// When to try again, and how long to wait first.
//
// Waits are drawn at random between 0 and a doubling bound (full jitter), so that clients thrown off together do not
// come back together; what the broker asks for (Retry-After) is added in front.
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

  /** Something came: whatever fails from here on is counted anew. */
  clear(): void {
    this.#tries = 0;
  }

  /** The wait in ms before the next try. Throws the error when there should be none. */
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
