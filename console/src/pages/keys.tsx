// What keys may do. No page ever shows a key.
import type { JSX } from "preact";
import { type Schemas } from "../api.js";
import { loadKeys, useLoaded } from "../data.js";
import { Badge, Empty, Head, Of, Table, type Column } from "../ui.js";

type Entry = Schemas["KeyEntry"];
const SCOPES = { read: "good", write: "info", delete: "warn", admin: "bad" } as const;

export function KeysPage(): JSX.Element {
  const loaded = useLoaded(loadKeys, []);
  const columns: Column<Entry>[] = [
    { name: "Key", cell: (entry) => <>number {entry.key} {entry.key === loaded.data?.current && <Badge kind="info">yours</Badge>}</>, by: (entry) => entry.key },
    { name: "Scopes", cell: (entry) => entry.scopes.map((scope) => <><Badge kind={SCOPES[scope]}>{scope}</Badge> </>), width: "minmax(0, 3fr)" },
    { name: "Topics and routers", cell: (entry) => (entry.prefixes.length === 0 ? "all" : entry.prefixes.map((prefix) => `${prefix}…`).join(", ")), width: "minmax(0, 3fr)" },
  ];
  return (
    <>
      <Head title="Keys" />
      <Of loaded={loaded}>{(keys) => (keys.required
        ? <><Table label="Keys" columns={columns} rows={keys.keys} id={(entry) => String(entry.key)} /><p><small>Keys are configured with TOPICS_API_KEYS and TOPICS_API_KEYS_FILE. The broker keeps a digest of each and cannot show it. Without the scope admin you see your own key alone.</small></p></>
        : <Empty title="This broker has no keys."><p>Everybody who reaches it may do everything. Set TOPICS_API_KEYS before it listens on a network.</p></Empty>)}</Of>
    </>
  );
}
