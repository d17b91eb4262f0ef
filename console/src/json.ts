// JSON as the broker has it. Whole numbers beyond 2^53 stay exact: they become BigInt.

interface Context {
  source?: string;
}

export function parseExact(text: string): unknown {
  // Only a text with a long number needs the slower way.
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  const reviver = (_: string, value: unknown, context?: Context): unknown => {
    const isExact = typeof value !== "number" || Number.isSafeInteger(value) || !/^-?\d+$/.test(context?.source ?? "");
    return isExact ? value : BigInt(context?.source ?? "0");
  };
  return JSON.parse(text, reviver as (key: string, value: unknown) => unknown);
}

/** JSON that is sent on. Whole numbers beyond 2^53 go as they are written. Throws where the browser would round them. */
export function parseToSend(text: string): unknown {
  const raw = (JSON as { rawJSON?: (text: string) => unknown }).rawJSON;
  const reviver = (_: string, value: unknown, context?: Context): unknown => {
    if (typeof value !== "number" || Number.isSafeInteger(value) || !Number.isInteger(value)) return value;
    const source = context?.source;
    if (source !== undefined && !/^-?\d+$/.test(source)) return value;
    if (source === undefined || raw === undefined) throw new Error(`this browser would round ${value}. Send it with curl or a client.`);
    return raw(source);
  };
  return JSON.parse(text, reviver as (key: string, value: unknown) => unknown);
}

/** The JSON of a value, indented if `indent` is not 0. Stops near `most` characters. */
export function print(value: unknown, indent = 0, most = Infinity): string {
  const out: string[] = [];
  let length = 0;
  const put = (text: string): boolean => {
    out.push(text);
    length += text.length;
    return length < most;
  };
  const walk = (each: unknown, depth: number): boolean => {
    if (typeof each === "string") return put(JSON.stringify(each.length > most ? each.slice(0, most) : each));
    if (typeof each !== "object" || each === null) return put(String(each));
    const isList = Array.isArray(each);
    const entries = Object.entries(each);
    if (entries.length === 0) return put(isList ? "[]" : "{}");
    const line = indent > 0 ? `\n${" ".repeat(indent * (depth + 1))}` : "";
    if (!put(isList ? "[" : "{")) return false;
    for (const [at, [name, inner]] of entries.entries()) {
      if (!put(`${at > 0 ? (indent > 0 ? "," : ", ") : ""}${line}${isList ? "" : `${JSON.stringify(name)}: `}`)) return false;
      if (!walk(inner, depth + 1)) return false;
    }
    return put(`${indent > 0 ? `\n${" ".repeat(indent * depth)}` : ""}${isList ? "]" : "}"}`);
  };
  const isWhole = walk(value, 0);
  const text = out.join("");
  return isWhole ? text : `${text.slice(0, most)} …`;
}
