// The console: navigation, search, keys, and the page that the address names.
import { render, type JSX } from "preact";
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, key, pages, useKey, reason, isUnauthorized, type Schemas } from "./api.js";
import { loadHealth, loadKeys, SessionContext, useLive, useLoaded, type Scope, type Session } from "./data.js";
import { duration } from "./format.js";
import { go, link, useRoute, type Route } from "./route.js";
import { TaskBar } from "./taskbar.js";
import { Button, Dialog, Empty, Field } from "./ui.js";
import { ClusterPage } from "./pages/cluster.js";
import { ConsumersPage } from "./pages/consumers.js";
import { KeysPage } from "./pages/keys.js";
import { OverviewPage } from "./pages/overview.js";
import { QueuesPage } from "./pages/queues.js";
import { RoutersPage } from "./pages/routers.js";
import { TopicPage } from "./pages/topic.js";
import { TopicsPage } from "./pages/topics.js";

const PAGES = [
  { id: "", name: "Overview", letter: "o" },
  { id: "topics", name: "Topics", letter: "t" },
  { id: "queues", name: "Queues", letter: "q" },
  { id: "routers", name: "Routers", letter: "r" },
  { id: "consumers", name: "Consumers", letter: "c" },
  { id: "cluster", name: "Cluster", letter: "n" },
  { id: "keys", name: "Keys", letter: "k" },
] as const;
const STATES = { connecting: "Connecting", live: "Live", lost: "Disconnected", unauthorized: "No key", forbidden: "No figures" };
const THEME = "topics.theme";
/** The types of Preact allow this role only with a `list` of the browser's own. */
const COMBOBOX: object = { role: "combobox" };

function Console(): JSX.Element {
  const route = useRoute();
  const [generation, setGeneration] = useState(0);
  const live = useLive(generation);
  const keys = useLoaded(loadKeys, [generation], 60_000);
  const health = useLoaded(loadHealth, [generation], 30_000);
  const [asking, setAsking] = useState(false);
  // Somebody who has closed the question is not asked again by the next answer that wants a key.
  const isDismissed = useRef(false);
  const [help, setHelp] = useState(false);
  const [toast, setToast] = useState<{ text: string; kind: "good" | "bad" } | undefined>();
  const search = useRef<HTMLInputElement>(null);
  const section = route.path[0] ?? "";

  useEffect(() => {
    const asked = (): void => { if (!isDismissed.current) setAsking(true); };
    window.addEventListener("unauthorized", asked);
    return () => window.removeEventListener("unauthorized", asked);
  }, []);
  useEffect(() => {
    if (toast === undefined) return;
    const timer = setTimeout(() => setToast(undefined), 6000);
    return () => clearTimeout(timer);
  }, [toast]);
  useEffect(() => {
    document.title = [route.path[1], PAGES.find((page) => page.id === section)?.name, "topics"].filter(Boolean).join(" · ");
  }, [route]);
  // On narrow screens not all links are in sight.
  useEffect(() => document.querySelector(".side [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" }), [section]);
  useShortcuts(search, () => setHelp(true));

  const say = useCallback((text: string, kind: "good" | "bad" = "good") => setToast({ text, kind }), []);
  const known = keys.data;
  const session: Session = useMemo(() => {
    const own = known?.keys.find((entry) => entry.key === known.current);
    const may = (scope: Scope): boolean => own === undefined || own.scopes.includes(scope);
    return {
      live,
      keys: known,
      health: health.data,
      lacks: (scopes, isForAll = false) => {
        const missing = [scopes].flat().filter((scope) => !may(scope));
        if (missing.length > 0) return `This key lacks the scope ${missing.join(" and ")}.`;
        return isForAll && (own?.prefixes.length ?? 0) > 0 ? "This key is for some topics only." : undefined;
      },
      askForKey: () => setAsking(true),
      say,
    };
  }, [live, known, health.data, say]);

  return (
    <SessionContext.Provider value={session}>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main")?.focus(); }}>Skip to the page</a>
      <div class={live.state === "lost" ? "shell stale-page" : "shell"}>
        <aside class="side">
          <a class="brand" href={link([])}>topics</a>
          <nav aria-label="Pages">
            {PAGES.map((page) => (
              <a key={page.id} href={link([page.id].filter(Boolean))} aria-current={page.id === section ? "page" : undefined} title={`g ${page.letter}`}>{page.name}</a>
            ))}
          </nav>
          <p class="foot">{health.data !== undefined && <>Version {health.data.version}<br />up {duration(live.overview?.uptime_ms ?? health.data.uptime_ms)}</>}<br /><a href="docs">HTTP API</a></p>
        </aside>
        <div>
          <header class="bar">
            <Search input={search} generation={generation} />
            <div class="right">
              <span class={`state ${live.state}`} role="status">{STATES[live.state]}</span>
              <Theme />
              <Button onClick={() => setAsking(true)}>Key</Button>
              <Button onClick={() => setHelp(true)} aria-label="Keyboard shortcuts" title="Keyboard shortcuts (?)">?</Button>
            </div>
          </header>
          {live.state === "lost" && <p class="notice" role="alert">The broker does not answer{live.at > 0 ? `; the figures are ${duration(Date.now() - live.at)} old` : ""}. The console tries again by itself.</p>}
          <TaskBar />
          <main id="main" tabIndex={-1} key={generation}><Page route={route} /></main>
        </div>
      </div>
      {asking && <KeyDialog close={() => { isDismissed.current = true; setAsking(false); }} changed={() => { isDismissed.current = false; setAsking(false); setGeneration((count) => count + 1); }} />}
      {help && <Help close={() => setHelp(false)} />}
      {toast !== undefined && <div class={`toast ${toast.kind}`} role={toast.kind === "bad" ? "alert" : "status"}>{toast.text}</div>}
    </SessionContext.Provider>
  );
}

function Page({ route }: { route: Route }): JSX.Element {
  const [section = "", name] = route.path;
  switch (section) {
    case "": return <OverviewPage />;
    case "topics": return name === undefined ? <TopicsPage route={route} /> : <TopicPage key={name} name={name} route={route} />;
    case "queues": return name === undefined ? <QueuesPage route={route} /> : <TopicPage key={name} name={name} route={route} />;
    case "routers": return <RoutersPage route={route} />;
    case "consumers": return <ConsumersPage route={route} />;
    case "cluster": return <ClusterPage />;
    case "keys": return <KeysPage />;
    default: return <Empty title="There is no such page."><p><a href={link([])}>Go to the overview</a></p></Empty>;
  }
}

/** Finds topics by a part of their name. */
function Search({ input, generation }: { input: { current: HTMLInputElement | null }; generation: number }): JSX.Element {
  const [text, setText] = useState("");
  const [open, setOpen] = useState(false);
  const [names, setNames] = useState<{ topic: string; type: string }[]>([]);
  const [at, setAt] = useState(0);
  useEffect(() => {
    if (!open) return;
    const abort = new AbortController();
    pages<Schemas["TopicEntry"]>("/v0/topics", "topics", 20_000, {}, abort.signal).then(([found]) => setNames(found), () => undefined);
    return () => abort.abort();
  }, [open, generation]);
  const found = useMemo(() => matches(names, text), [names, text]);
  const choose = (topic: { topic: string; type: string } | undefined): void => {
    const name = topic?.topic ?? text.trim();
    if (name === "") return;
    setText("");
    setOpen(false);
    input.current?.blur();
    go([topic?.type === "queue" ? "queues" : "topics", name]);
  };
  const typed = (event: KeyboardEvent): void => {
    if (event.key === "ArrowDown") setAt((now) => Math.min(now + 1, found.length - 1));
    else if (event.key === "ArrowUp") setAt((now) => Math.max(now - 1, 0));
    else if (event.key === "Enter") choose(found[at]);
    else if (event.key === "Escape") { setOpen(false); input.current?.blur(); }
    else return;
    event.preventDefault();
  };
  const isShown = open && text !== "";
  return (
    <div class="find">
      <input ref={input} type="search" placeholder="Find a topic ( / )" aria-label="Find a topic" value={text} autocomplete="off" spellcheck={false}
        {...COMBOBOX} aria-expanded={isShown} aria-controls="found" aria-activedescendant={isShown && found.length > 0 ? `found-${at}` : undefined}
        onFocus={() => setOpen(true)} onBlur={() => setTimeout(() => setOpen(false), 150)} onKeyDown={typed}
        onInput={(event) => { setText(event.currentTarget.value); setAt(0); setOpen(true); }} />
      <ul id="found" class="found" role="listbox" aria-label="Topics" hidden={!isShown}>
        {isShown && found.map((topic, number) => (
          <li key={topic.topic} id={`found-${number}`} role="option" aria-selected={number === at} onMouseDown={() => choose(topic)}>{topic.topic}</li>
        ))}
        {isShown && found.length === 0 && <li role="option" aria-selected="false" aria-disabled="true">No topic has “{text}” in its name.</li>}
      </ul>
    </div>
  );
}

function matches(names: { topic: string; type: string }[], text: string): { topic: string; type: string }[] {
  const wanted = text.trim().toLowerCase();
  if (wanted === "") return [];
  const found = names.filter((each) => each.topic.toLowerCase().includes(wanted));
  return found.sort((one, other) => Number(!one.topic.toLowerCase().startsWith(wanted)) - Number(!other.topic.toLowerCase().startsWith(wanted))).slice(0, 20);
}

function Theme(): JSX.Element {
  const [theme, setTheme] = useState(() => localStorage.getItem(THEME) ?? "");
  useEffect(() => {
    if (theme === "") delete document.documentElement.dataset["theme"];
    else document.documentElement.dataset["theme"] = theme;
  }, [theme]);
  const isDark = theme === "dark" || (theme === "" && matchMedia("(prefers-color-scheme: dark)").matches);
  const other = isDark ? "light" : "dark";
  return <Button aria-label={`Use ${other} colours`} title={`Use ${other} colours`} onClick={() => { localStorage.setItem(THEME, other); setTheme(other); }}>{isDark ? "☀" : "☾"}</Button>;
}

function KeyDialog({ close, changed }: { close: () => void; changed: () => void }): JSX.Element {
  const [text, setText] = useState("");
  const [error, setError] = useState<string>();
  const before = key();
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    useKey(text.trim());
    try {
      await get("/v0/keys");
      changed();
    } catch (failure) {
      useKey(before);
      setError(isUnauthorized(failure) ? "The broker does not know this key." : reason(failure));
    }
  };
  return (
    <Dialog title="API key" close={close}>
      <form onSubmit={(event) => void submit(event)}>
        <Field label="Key" hint="It stays in this tab and is sent to this broker alone. What it may do is on the page Keys.">
          {(id) => <input id={id} type="password" value={text} autocomplete="off" onInput={(event) => setText(event.currentTarget.value)} />}
        </Field>
        {error !== undefined && <p class="error" role="alert">{error}</p>}
        <p class="actions">
          {before !== "" && <Button onClick={() => { useKey(""); changed(); }}>Forget the key</Button>}
          <Button type="submit" kind="main" disabled={text.trim() === ""}>Use this key</Button>
        </p>
      </form>
    </Dialog>
  );
}

function Help({ close }: { close: () => void }): JSX.Element {
  return (
    <Dialog title="Keyboard shortcuts" close={close}>
      <div>
        <dl class="facts">
          <div><dt>Find a topic</dt><dd><kbd>/</kbd></dd></div>
          {PAGES.map((page) => <div key={page.id}><dt>{page.name}</dt><dd><kbd>g</kbd> <kbd>{page.letter}</kbd></dd></div>)}
          <div><dt>Close a dialog</dt><dd><kbd>Esc</kbd></dd></div>
          <div><dt>This list</dt><dd><kbd>?</kbd></dd></div>
        </dl>
      </div>
    </Dialog>
  );
}

function useShortcuts(search: { current: HTMLInputElement | null }, help: () => void): void {
  useEffect(() => {
    let wentAt = 0;
    const pressed = (event: KeyboardEvent): void => {
      const target = event.target;
      const isTyping = target instanceof HTMLElement && (target.matches("input, textarea, select") || target.isContentEditable);
      if (isTyping || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]") !== null) return;
      const page = PAGES.find((each) => each.letter === event.key);
      if (event.key === "/") search.current?.focus();
      else if (event.key === "?") help();
      else if (event.key === "g") { wentAt = event.timeStamp; return; }
      else if (page !== undefined && event.timeStamp - wentAt < 1500) go([page.id].filter(Boolean));
      else return;
      wentAt = 0;
      event.preventDefault();
    };
    window.addEventListener("keydown", pressed);
    return () => window.removeEventListener("keydown", pressed);
  }, []);
}

// A page that the browser has put aside holds connections, and what it shows is old.
window.addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });

const root = document.getElementById("app");
// The name that was painted before this script came goes: Preact leaves what is there already.
root?.replaceChildren();
if (root !== null) render(<Console />, root);

