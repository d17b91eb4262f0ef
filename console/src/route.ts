// Where the reader is: #/topics/orders?tab=records. Names are escaped, so that any name is a path.
import { useEffect, useState } from "preact/hooks";

export interface Route {
  path: string[];
  query: URLSearchParams;
}

export function parse(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter((part) => part !== "");
  return { path: parts.map(unescaped), query: new URLSearchParams(query) };
}

function unescaped(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function link(path: readonly string[], query: Record<string, string | number | undefined> = {}): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  const search = given.length > 0 ? `?${new URLSearchParams(given.map(([name, value]): [string, string] => [name, String(value)]))}` : "";
  return `#/${path.map(encodeURIComponent).join("/")}${search}`;
}

export function go(path: readonly string[], query: Record<string, string | number | undefined> = {}): void {
  location.hash = link(path, query);
}

/** Change the query of this page, without a step in the browser's history. */
export function amend(query: Record<string, string | number | undefined>): void {
  const now = parse(location.hash);
  const merged = { ...Object.fromEntries(now.query), ...query };
  history.replaceState(null, "", link(now.path, merged));
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}

export function useRoute(): Route {
  const [route, setRoute] = useState(() => parse(location.hash));
  useEffect(() => {
    const moved = (): void => setRoute(parse(location.hash));
    window.addEventListener("hashchange", moved);
    return () => window.removeEventListener("hashchange", moved);
  }, []);
  return route;
}
