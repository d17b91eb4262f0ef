// What can go wrong between a program and the broker.
//
//   TopicsError                  `outcome` none: the broker changed nothing; unknown: it may have done what was asked
//     ConnectionFailed           no answer came back: nothing listens there, the line broke, or time ran out
//     UnexpectedAnswer           something answered, but not the way a topics broker does
//     SeqOutOfRange              a number that JavaScript cannot hold exactly (2^53 and above)
//     ApiError                   the broker refused: `code`, `status`, `detail`
//     RecordsLost                records are gone before they were read: `tombstone`
//     LeaseLost                  a job is no longer leased to its worker; `seqs` names the jobs
//
// An aborted call rejects with the reason of its signal, as `fetch` does.
import type { components } from "./generated/api.js";

export type ErrorCode = components["schemas"]["ErrorCode"];
export type Tombstone = components["schemas"]["Tombstone"];
/** none: the broker changed nothing. unknown: it may have done what was asked. */
export type Outcome = "none" | "unknown";

/** What all errors of this client are. `outcome` says whether the broker may have done what was asked. */
export class TopicsError extends Error {
  override name = "TopicsError";

  /** Whether the same call may succeed a moment later. */
  get transient(): boolean {
    return false;
  }

  constructor(message: string, readonly outcome: Outcome = "none", options?: ErrorOptions) {
    super(message, options);
  }
}

/** No answer came back: nothing listens there, the connection broke, or time ran out. */
export class ConnectionFailed extends TopicsError {
  override name = "ConnectionFailed";

  override get transient(): boolean {
    return true;
  }
}

/** Something answered, but not as a topics broker does. */
export class UnexpectedAnswer extends TopicsError {
  override name = "UnexpectedAnswer";
}

/** A number that JavaScript cannot hold exactly: 2^53 and above. */
export class SeqOutOfRange extends TopicsError {
  override name = "SeqOutOfRange";

  /** `outcome`: unknown when an answer has the number, because the broker has then done what was asked. */
  constructor(readonly field: string, outcome: Outcome) {
    super(`${field}: above 2^53 - 1, which a number of JavaScript cannot hold exactly.`, outcome);
  }
}

/** Limits that stay reached until something is deleted: a short wait does not help. */
const STANDING = new Set<unknown>(["max_topics", "max_partitions", "max_routers", "max_consumers", "max_total_bytes"]);
const TRANSIENT = new Set([429, 502, 503, 504, 507]);

/** The broker refused the call. */
export class ApiError extends TopicsError {
  override name = "ApiError";

  /** `code`: a later broker may have codes that `ErrorCode` lacks. `retryAfterMs`: what the broker asks to wait. */
  constructor(
    message: string,
    readonly status: number,
    readonly code: ErrorCode | (string & {}),
    readonly detail: Readonly<Record<string, unknown>> = {},
    readonly retryAfterMs = 0,
  ) {
    super(message, outcomeOf(status, code, detail));
  }

  override get transient(): boolean {
    return TRANSIENT.has(this.status) && !(this.status === 429 && STANDING.has(this.detail["limit"]));
  }
}

/** Jobs are no longer leased to their worker; `seqs` names them. */
export class LeaseLost extends TopicsError {
  override name = "LeaseLost";

  constructor(readonly seqs: readonly number[]) {
    super(`Not, or no longer, leased to this worker: ${seqs.join(", ")}. Others may do these jobs.`);
  }
}

/** Records are gone that were not read yet; `tombstone` says which. */
export class RecordsLost extends TopicsError {
  override name = "RecordsLost";

  constructor(readonly tombstone: Tombstone) {
    super(`Seqs ${tombstone.gap_from} to ${tombstone.gap_to} are gone: ${tombstone.reason}.`);
  }
}

function outcomeOf(status: number, code: string, detail: Readonly<Record<string, unknown>>): Outcome {
  if (status < 500 || code === "segment_corrupt" || status === 507) return "none";
  return status === 503 && code !== "storage_failed" && detail["outcome"] !== "unknown" ? "none" : "unknown";
}
