// A broker of this checkout, in a process of its own. PYTHON says which Python runs it.
import { spawn, type ChildProcess } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { setTimeout as sleep } from "node:timers/promises";

// This file runs as build/test/broker.js.
const ROOT = resolve(dirname(fileURLToPath(import.meta.url)), "../../../..");
const PYTHON = process.env["PYTHON"] ?? join(ROOT, ".venv/bin/python");
const PATIENCE_MS = 60_000;

export class Broker {
  port = 0;
  #process: ChildProcess | undefined;
  #log = "";

  private constructor(readonly folder: string, readonly cells: number) {}

  /** `cells`: with more than one, a set of them behind a gateway. */
  static async start(cells = 1): Promise<Broker> {
    const broker = new Broker(await mkdtemp(join(tmpdir(), "topics-")), cells);
    await broker.start();
    return broker;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Starts it, again on the port that it had. */
  async start(): Promise<void> {
    const portFile = join(this.folder, "port");
    await rm(portFile, { force: true });
    const env = {
      ...process.env,
      TOPICS_DATA_DIR: join(this.folder, "data"),
      TOPICS_PORT: String(this.port),
      TOPICS_PORT_FILE: portFile,
      TOPICS_CELLS: String(this.cells),
    };
    const started = spawn(PYTHON, ["-m", "broker"], { cwd: ROOT, env, stdio: ["ignore", "pipe", "pipe"] });
    this.#process = started;
    for (const stream of [started.stdout, started.stderr]) stream?.on("data", (text) => (this.#log += text));
    for (const began = Date.now(); Date.now() - began < PATIENCE_MS && started.exitCode === null; await sleep(20)) {
      this.port = Number(await readFile(portFile, "utf8").catch(() => "")) || this.port;
      const ready = this.port > 0 && (await fetch(`${this.url}/v0/ready`).catch(() => undefined));
      if (ready && ready.ok) return;
    }
    throw new Error(`The broker does not start: ${this.#log}`);
  }

  async kill(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
    const ended = this.#process;
    if (ended === undefined || ended.exitCode !== null) return;
    const exit = new Promise((done) => ended.once("exit", done));
    ended.kill(signal);
    await exit;
  }

  /** Kills one cell, which the supervisor starts again. */
  async killCell(cell: number): Promise<void> {
    const lock = join(this.folder, "data", `cell-${String(cell).padStart(2, "0")}`, ".lock");
    process.kill(Number((await readFile(lock, "utf8")).split("\n")[0]), "SIGKILL");
  }

  signal(signal: NodeJS.Signals): void {
    this.#process?.kill(signal);
  }

  async end(): Promise<void> {
    await this.kill();
    await rm(this.folder, { recursive: true, force: true });
  }
}
