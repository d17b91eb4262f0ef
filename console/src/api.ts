// Calls of the broker's public API, with the key of this tab.
import { ApiError, ConnectionFailed, TopicsClient, TopicsError } from "../../clients/typescript/src/index.js";
import type { components } from "../../clients/typescript/src/generated/api.js";
import { eventsOf } from "../../clients/typescript/src/events.js";
import { parseExact } from "./json.js";

export type Schemas = components["schemas"];
export { ApiError, ConnectionFailed, TopicsError };

/** The address of the broker: this page is /console there. */
export const BASE = new URL(".", location.href).href.replace(/\/$/, "");
const KEY = "topics.key";
/** The console shows errors at once and tries again by itself. */
const RETRY = { totalMs: 1500 };

export function key(): string {
  return sessionStorage.getItem(KEY) ?? "";
}

export let client = connect();

function connect(): TopicsClient {
  return new TopicsClient(BASE, { key: key(), retry: RETRY, parse: parseExact });
}

/** Use this key from now on; empty: none. It stays in this tab, until the tab is closed. */
export function useKey(text: string): void {
  if (text === "") sessionStorage.removeItem(KEY);
  else sessionStorage.setItem(KEY, text);
  client = connect();
}

export interface Asked {
  query?: Record<string, unknown>;
  body?: unknown;
  signal?: AbortSignal | null;
  waitMs?: number;
}

export async function call<T>(method: string, path: string, { query, body, signal, waitMs }: Asked = {}): Promise<T> {
  const isSafe = method !== "POST";
  return (await client.transport.call({ method, path, query, body, signal, waitMs: waitMs ?? 0, isSafe })) as T;
}

export const get = <T>(path: string, asked?: Asked): Promise<T> => call<T>("GET", path, asked);

/** The path of a topic. */
export const topicPath = (name: string, rest = ""): string => `/v0/topics/${encodeURIComponent(name)}${rest}`;

/** Reads of records are POSTs that change nothing. */
export async function read(topic: string, body: object, partition = 0, signal?: AbortSignal): Promise<Schemas["DiffAnswer"]> {
  const query = partition > 0 ? { partition } : {};
  const path = topicPath(topic, "/diff");
  return (await client.transport.call({ method: "POST", path, query, body, signal, isSafe: true })) as Schemas["DiffAnswer"];
}

/** All pages of a list, up to `most` entries. The second value: whether there are more. */
export async function pages<T>(path: string, field: string, most: number, query: Record<string, unknown> = {}, signal?: AbortSignal): Promise<[T[], boolean]> {
  const found: T[] = [];
  let cursor: string | undefined;
  do {
    const page: Record<string, unknown> = await get(path, { query: { ...query, page_size: 1000, cursor }, signal: signal ?? null });
    found.push(...(page[field] as T[]));
    cursor = page["next_cursor"] as string | undefined;
  } while (cursor !== undefined && found.length < most);
  return [found, cursor !== undefined];
}

/** The events of the overview. Ends with an error when the connection breaks or goes silent. */
export async function* overviews(signal: AbortSignal): AsyncGenerator<Schemas["Overview"]> {
  const silence = new AbortController();
  let timer = 0;
  const alive = (): void => {
    clearTimeout(timer);
    timer = window.setTimeout(() => silence.abort(new ConnectionFailed("The stream went silent.")), 10_000);
  };
  try {
    alive();
    const both = AbortSignal.any([signal, silence.signal]);
    const headers = { Accept: "text/event-stream" };
    const body = await client.transport.open({ method: "GET", path: "/v0/overview/stream", headers, signal: both, isSafe: true });
    for await (const event of eventsOf(body, alive)) {
      if (event.event === "overview") yield JSON.parse(event.data) as Schemas["Overview"];
    }
  } finally {
    clearTimeout(timer);
  }
}

/** What went wrong, in one sentence. */
export function reason(error: unknown): string {
  if (error instanceof ApiError && error.code === "forbidden") return `Not allowed: ${error.message}`;
  if (error instanceof ConnectionFailed) return "The broker does not answer.";
  return error instanceof Error ? error.message : String(error);
}

export const isUnauthorized = (error: unknown): boolean => error instanceof ApiError && error.status === 401;
export const isForbidden = (error: unknown): boolean => error instanceof ApiError && error.status === 403;
export const isMissing = (error: unknown): boolean => error instanceof ApiError && error.status === 404;
