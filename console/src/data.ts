// What pages show: answers that are asked for again and again, and the live figures of the broker.
import { createContext } from "preact";
import { useCallback, useContext, useEffect, useRef, useState } from "preact/hooks";
import { get, isForbidden, isUnauthorized, overviews, type Schemas } from "./api.js";

export interface Loaded<T> {
  data: T | undefined;
  /** Of the last try. `data` is then what was there before. */
  error: unknown;
  reload: () => void;
}

/** An answer that took long is asked for again after so many times as long: very full brokers are asked less often. */
const PATIENCE = 10;
const MOST_MS = 60_000;

/** Ask now, when `deps` change, and every `everyMs` while the tab is visible. */
export function useLoaded<T>(ask: (signal: AbortSignal) => Promise<T>, deps: readonly unknown[], everyMs = 0): Loaded<T> {
  const [state, setState] = useState<{ data: T | undefined; error: unknown }>({ data: undefined, error: undefined });
  const [again, setAgain] = useState(0);
  const shown = useRef<readonly unknown[]>([]);
  useEffect(() => {
    const abort = new AbortController();
    let timer = 0;
    const run = async (): Promise<void> => {
      const begun = performance.now();
      let nextMs = everyMs;
      try {
        const data = await ask(abort.signal);
        nextMs = Math.max(everyMs, Math.min(MOST_MS, PATIENCE * (performance.now() - begun)));
        if (!abort.signal.aborted) setState({ data, error: undefined });
      } catch (error) {
        if (abort.signal.aborted) return;
        if (isUnauthorized(error)) window.dispatchEvent(new Event("unauthorized"));
        setState((before) => ({ data: before.data, error }));
      }
      if (everyMs > 0 && !abort.signal.aborted) timer = window.setTimeout(tick, nextMs);
    };
    const tick = (): void => {
      if (document.hidden) timer = window.setTimeout(tick, everyMs);
      else void run();
    };
    if (shown.current.some((each, at) => each !== deps[at])) setState({ data: undefined, error: undefined });
    shown.current = deps;
    void run();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [...deps, again, everyMs]);
  const reload = useCallback(() => setAgain((count) => count + 1), []);
  return { ...state, reload };
}

export type Overview = Schemas["Overview"];
export type Keys = Schemas["KeysAnswer"];
export type Health = Schemas["HealthAnswer"];

export interface Live {
  overview: Overview | undefined;
  /** The sample before, for rates. */
  before: Overview | undefined;
  state: "connecting" | "live" | "lost" | "unauthorized" | "forbidden";
  /** When the last sample came. */
  at: number;
}

/** The figures of the broker, as they come, for as long as the tab is visible. */
export function useLive(generation: number): Live {
  const [live, setLive] = useState<Live>({ overview: undefined, before: undefined, state: "connecting", at: 0 });
  useEffect(() => {
    const ended = new AbortController();
    const run = async (): Promise<void> => {
      for (let tries = 0; !ended.signal.aborted; tries += 1) {
        await visible();
        // Browsers have six connections to a broker over HTTP/1.1, for all tabs: a hidden one takes none.
        const hidden = new AbortController();
        const changed = (): void => { if (document.hidden) hidden.abort(); };
        document.addEventListener("visibilitychange", changed);
        try {
          for await (const overview of overviews(AbortSignal.any([ended.signal, hidden.signal]))) {
            tries = 0;
            setLive((last) => ({ overview, before: last.overview, state: "live", at: Date.now() }));
          }
          throw new Error("The stream ended.");
        } catch (error) {
          if (ended.signal.aborted) return;
          if (hidden.signal.aborted) continue;
          const state = isUnauthorized(error) ? "unauthorized" : isForbidden(error) ? "forbidden" : "lost";
          if (state === "unauthorized") window.dispatchEvent(new Event("unauthorized"));
          setLive((last) => ({ ...last, state }));
          if (state !== "lost") return; // until there is another key
        } finally {
          document.removeEventListener("visibilitychange", changed);
        }
        await new Promise((resolve) => setTimeout(resolve, Math.min(5000, 500 * 2 ** tries)));
      }
    };
    void run();
    return () => ended.abort();
  }, [generation]);
  return live;
}

async function visible(): Promise<void> {
  while (document.hidden) await new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
}

export type Scope = Schemas["KeyEntry"]["scopes"][number];

export interface Session {
  live: Live;
  keys: Keys | undefined;
  health: (Health & { nodes?: unknown }) | undefined;
  /** Why the key of this tab may not do it, for a disabled button; unknown counts as allowed: the broker decides.
   * `isForAll`: it concerns all topics. */
  lacks: (scopes: Scope | readonly Scope[], isForAll?: boolean) => string | undefined;
  askForKey: () => void;
  say: (text: string, kind?: "good" | "bad") => void;
}

export const SessionContext = createContext<Session | undefined>(undefined);

export function useSession(): Session {
  const session = useContext(SessionContext);
  if (session === undefined) throw new Error("outside of the console");
  return session;
}

export const loadKeys = (signal: AbortSignal): Promise<Keys> => get<Keys>("/v0/keys", { signal });
export const loadHealth = (signal: AbortSignal): Promise<Health> => get<Health>("/v0/health", { signal });
