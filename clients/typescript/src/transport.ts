// One call over `fetch`: its tries, its time, and its answer as a value.
import { ApiError, ConnectionFailed, SeqOutOfRange, TopicsError, UnexpectedAnswer } from "./errors.js";
import { backoffMs, RETRY, type RetryPolicy } from "./retry.js";
import { Linked, sleep } from "./waiting.js";

export interface ClientOptions {
  /** A key of the broker, if it has any. */
  key?: string;
  retry?: Partial<RetryPolicy>;
  /** How long an answer may take, beyond what the call asks the broker to wait. */
  timeoutMs?: number;
  fetch?: typeof globalThis.fetch;
  /** Reads answers in place of JSON.parse, for payloads that need more: whole numbers above 2^53, for instance. */
  parse?: (text: string) => unknown;
}

export interface Call {
  method: string;
  /** Begins with a slash, and is escaped. */
  path: string;
  query?: Readonly<Record<string, unknown>> | undefined;
  body?: unknown;
  headers?: Readonly<Record<string, string>>;
  signal?: AbortSignal | null | undefined;
  /** How long the broker may wait before it answers. */
  waitMs?: number;
  /** Whether doing it twice has the effect of once. Otherwise it is repeated only if it was surely not done. */
  isSafe: boolean;
  /** Set when an earlier try of a call that succeeded may have been carried out, too. */
  report?: { perhapsDone: boolean };
}

/** Fields whose content is the user's: any number may be in there. */
const PAYLOADS = new Set(["data", "meta", "detail", "request_id"]);
const GRACE_MS = 30_000;

export class Transport {
  readonly url: string;
  readonly retry: RetryPolicy;
  readonly #key: string | undefined;
  readonly #timeoutMs: number;
  readonly #fetch: typeof globalThis.fetch;
  readonly #parse: (text: string) => unknown;

  constructor(url: string, options: ClientOptions) {
    this.url = url.replace(/\/+$/, "");
    this.retry = { ...RETRY, ...options.retry };
    this.#key = options.key || undefined;
    this.#timeoutMs = options.timeoutMs ?? GRACE_MS;
    this.#fetch = options.fetch ?? globalThis.fetch.bind(globalThis);
    this.#parse = options.parse ?? JSON.parse;
  }

  /** The answer to a call. Rejects with a TopicsError, or with the reason of the signal. */
  async call(call: Call): Promise<unknown> {
    const sent = encoded(call.body);
    const began = performance.now();
    for (let tries = 1; ; tries += 1) {
      try {
        return await this.#once(call, sent);
      } catch (error) {
        if (!(error instanceof TopicsError) || !error.transient) throw error;
        if (!call.isSafe && error.outcome !== "none") throw error;
        if (call.report && error.outcome === "unknown") call.report.perhapsDone = true;
        const wait = backoffMs(this.retry, tries, error);
        if (this.retry.totalMs <= 0 || performance.now() - began + wait > this.retry.totalMs) throw error;
        await sleep(wait, call.signal);
      }
    }
  }

  async #once(call: Call, sent: string | undefined): Promise<unknown> {
    const linked = new Linked(call.signal);
    const late = new ConnectionFailed("No answer in time.", "unknown");
    const timer = setTimeout(() => linked.abort(late), this.#timeoutMs + (call.waitMs ?? 0));
    try {
      const answer = await this.#fetched(call, sent, linked.signal);
      const text = await answer.text().catch((error: unknown) => {
        throw broken(error, linked.signal);
      });
      if (!answer.ok) throw this.#refusal(answer, text);
      return this.#checked(text);
    } finally {
      clearTimeout(timer);
      linked.end();
    }
  }

  /** An endless answer, whose body is read by the caller. One try. */
  async open(call: Call): Promise<ReadableStream<Uint8Array>> {
    const answer = await this.#fetched(call, undefined, call.signal ?? undefined);
    if (!answer.ok) throw this.#refusal(answer, await answer.text().catch(() => ""));
    if (answer.body === null) throw new UnexpectedAnswer("The answer has no body.");
    return answer.body;
  }

  async #fetched(call: Call, sent: string | undefined, signal: AbortSignal | undefined): Promise<Response> {
    const headers: Record<string, string> = { ...call.headers };
    if (sent !== undefined) headers["Content-Type"] = "application/json";
    if (this.#key !== undefined) headers["Authorization"] = `Bearer ${this.#key}`;
    const init: RequestInit = { method: call.method, headers, cache: "no-store", credentials: "omit" };
    if (sent !== undefined) init.body = sent;
    if (signal !== undefined) init.signal = signal;
    return this.#fetch(this.url + call.path + search(call.query), init).catch((error: unknown) => {
      throw broken(error, signal);
    });
  }

  #refusal(answer: Response, text: string): TopicsError {
    let body: { error?: { code?: string; message?: string; detail?: Record<string, unknown> } } = {};
    try {
      body = JSON.parse(text) as typeof body;
    } catch {
      // A proxy's page: its status says enough.
    }
    const error = body?.error;
    if (error?.code === undefined && answer.status < 500) {
      return new UnexpectedAnswer(`Status ${answer.status}, and no error of a broker.`);
    }
    const seconds = Number(answer.headers.get("retry-after") ?? 0);
    const asked = error?.detail?.["retry_after_ms"];
    const wait = typeof asked === "number" ? asked : Number.isFinite(seconds) ? seconds * 1000 : 0;
    const message = error?.message ?? `Status ${answer.status}.`;
    return new ApiError(message, answer.status, error?.code ?? "internal", error?.detail, wait);
  }

  #checked(text: string): unknown {
    let value: unknown;
    try {
      value = this.#parse(text);
    } catch (error) {
      throw new UnexpectedAnswer("The answer is no JSON.", "unknown", { cause: error });
    }
    checkNumbers(value, "unknown");
    return value;
  }

  /** The data of an event. */
  event(text: string): unknown {
    return this.#checked(text);
  }
}

/** Throws SeqOutOfRange if a whole number is too large to be exact: of what the broker says, not of payloads. */
export function checkNumbers(value: unknown, outcome: "none" | "unknown", field = "answer"): void {
  if (typeof value === "number" || typeof value === "bigint") {
    const isExact = typeof value === "number" && (Number.isSafeInteger(value) || !Number.isInteger(value));
    if (!isExact) throw new SeqOutOfRange(field, outcome);
  } else if (Array.isArray(value)) {
    for (const each of value) checkNumbers(each, outcome, field);
  } else if (typeof value === "object" && value !== null) {
    for (const [name, each] of Object.entries(value)) {
      if (!PAYLOADS.has(name)) checkNumbers(each, outcome, name);
    }
  }
}

function encoded(body: unknown): string | undefined {
  if (body === undefined) return undefined;
  checkNumbers(body, "none");
  return JSON.stringify(body);
}

function search(query: Readonly<Record<string, unknown>> | undefined): string {
  const given = Object.entries(query ?? {}).filter(([, value]) => value !== undefined && value !== null);
  if (given.length === 0) return "";
  return `?${new URLSearchParams(given.map(([name, value]): [string, string] => [name, String(value)]))}`;
}

/** Why there is no answer. An abort by the caller stays what it is. */
export function broken(error: unknown, signal: AbortSignal | null | undefined): unknown {
  if (signal?.aborted) return signal.reason;
  if (error instanceof TopicsError) return error;
  return new ConnectionFailed("No answer of the broker.", "unknown", { cause: error });
}
