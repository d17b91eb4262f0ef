// Work of many calls: it goes on while its user looks at other pages, and over a restart of the broker.
// Every call moves or deletes a bounded number of jobs, so a tab that is closed leaves whole calls behind.
import { useEffect, useState } from "preact/hooks";
import { ApiError, call, ConnectionFailed, reason, topicPath, type Schemas } from "./api.js";

export interface Task {
  id: number;
  kind: "redrive" | "purge";
  topic: string;
  /** Jobs so far, and in all as far as is known. */
  done: number;
  total: number;
  state: "running" | "waiting" | "done" | "stopped" | "failed";
  error?: string;
}

/** The most jobs of one call. */
const BATCH = 500;
const RETRY_MS = 2_000;
/** Ended tasks that stay in sight. */
const MOST_ENDED = 5;

let tasks: readonly Task[] = [];
let last = 0;
const stopped = new Set<number>();
const watchers = new Set<() => void>();

function put(task: Task): void {
  const others = tasks.filter((each) => each.id !== task.id);
  const ended = others.filter((each) => !isRunning(each)).slice(-MOST_ENDED);
  tasks = [...others.filter((each) => isRunning(each) || ended.includes(each)), task].sort((one, other) => one.id - other.id);
  for (const watcher of watchers) watcher();
}

export const isRunning = (task: Task): boolean => task.state === "running" || task.state === "waiting";

/** The tasks of this tab, as they go on. */
export function useTasks(): readonly Task[] {
  const [, setCount] = useState(0);
  useEffect(() => {
    const watcher = (): void => setCount((count) => count + 1);
    watchers.add(watcher);
    return () => void watchers.delete(watcher);
  }, []);
  return tasks;
}

/** End a task after its present call. */
export const stop = (id: number): void => void stopped.add(id);

/** No longer show a task that has ended. */
export function dismiss(id: number): void {
  tasks = tasks.filter((each) => each.id !== id || isRunning(each));
  for (const watcher of watchers) watcher();
}

// The browser asks before it closes a tab whose tasks would end with it.
window.addEventListener("beforeunload", (event) => {
  if (tasks.some(isRunning)) event.preventDefault();
});

/** One call. Returns how many jobs it did, and how many remain. */
type Step = (done: number) => Promise<{ did: number; remaining: number }>;

async function run(kind: Task["kind"], topic: string, total: number, step: Step): Promise<void> {
  let task: Task = { id: (last += 1), kind, topic, done: 0, total, state: "running" };
  const change = (changes: Partial<Task>): void => put((task = { ...task, ...changes }));
  change({});
  while (!stopped.has(task.id)) {
    try {
      const { did, remaining } = await step(task.done);
      const done = task.done + did;
      change({ done, total: done + remaining, state: did === 0 || remaining === 0 ? "done" : "running" });
      if (task.state === "done") return;
    } catch (failure) {
      if (!isPassing(failure)) return change({ state: "failed", error: reason(failure) });
      change({ state: "waiting" });
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
  change({ state: "stopped" });
}

/** Whether the same call may succeed soon: the broker is away, or has too much to do. */
const isPassing = (failure: unknown): boolean => failure instanceof ConnectionFailed || (failure instanceof ApiError && (failure.status === 503 || failure.status === 429));

/** Move all dead letters of a queue back to it. Each is moved exactly once, also by a call whose answer is lost. */
export function redriveAll(topic: string, total: number): void {
  void run("redrive", topic, total, async () => {
    const answer = await call<Schemas["RedriveAnswer"]>("POST", topicPath(topic, "/redrive"), { body: { max: BATCH }, waitMs: 30_000 });
    return { did: answer.moved, remaining: answer.remaining };
  });
}

/** Delete the jobs of a queue that are in these states and not after this seq. */
export function purge(topic: string, states: readonly string[], throughSeq: number, total: number): void {
  void run("purge", topic, total, async (done) => {
    const body = { states, max: BATCH, through_seq: throughSeq };
    const { purged } = await call<Schemas["PurgeAnswer"]>("POST", topicPath(topic, "/purge"), { body, waitMs: 30_000 });
    return { did: purged, remaining: purged < BATCH ? 0 : Math.max(1, total - done - purged) };
  });
}
