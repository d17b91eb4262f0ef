// The tasks of this tab, on every page.
import type { JSX } from "preact";
import { whole } from "./format.js";
import { link } from "./route.js";
import { dismiss, isRunning, stop, useTasks, type Task } from "./tasks.js";
import { Button } from "./ui.js";

const VERBS = { redrive: ["Redrive of", "moved"], purge: ["Purge of", "deleted"] } as const;
const ENDS = { running: "", waiting: "Waiting for the broker: ", done: "Done: ", stopped: "Stopped: ", failed: "Failed: " } as const;

export function TaskBar(): JSX.Element {
  const tasks = useTasks();
  return <>{tasks.length > 0 && <section class="tasks" aria-label="Tasks">{tasks.map((task) => <Shown key={task.id} task={task} />)}</section>}</>;
}

function Shown({ task }: { task: Task }): JSX.Element {
  const [name, done] = VERBS[task.kind];
  return (
    <div class={`task ${task.state}`}>
      <span>{name} <a class="name" href={link(["queues", task.topic])}>{task.topic}</a></span>
      <progress value={task.done} max={Math.max(1, task.total)} aria-label={`${name} ${task.topic}`} />
      <span role="status">{ENDS[task.state]}{whole(task.done)} of {whole(task.total)} jobs {done}.{task.error === undefined ? "" : ` ${task.error}`}</span>
      {isRunning(task) ? <Button onClick={() => stop(task.id)}>Stop</Button> : <Button onClick={() => dismiss(task.id)}>Close</Button>}
    </div>
  );
}
