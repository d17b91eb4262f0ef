export { TopicsClient, bytesOf } from "./client.js";
export type {
  AppendOptions, ClaimAnswer, ClaimOptions, Held, Job, NackOptions, NewRecord, ReadAnswer, ReadOptions, RedriveOptions,
  SettleOptions, StoredRecord,
} from "./client.js";
export {
  ApiError, ConnectionFailed, LeaseLost, RecordsLost, SeqOutOfRange, TopicsError, UnexpectedAnswer,
} from "./errors.js";
export type { ErrorCode, Outcome, Tombstone } from "./errors.js";
export type { RetryPolicy } from "./retry.js";
export type { ClientOptions } from "./transport.js";
export type { WatchEvent, WatchOptions, WatchStart, WatchTopics } from "./watch.js";
export { GiveBack, Worker, WorkerStopped } from "./worker.js";
export type { Handler, JobContext, WorkerOptions } from "./worker.js";
export type { components, operations, paths } from "./generated/api.js";
