// Numbers and times as people read them.

const number = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });
const compact = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });

export const whole = (value: number): string => number.format(Math.round(value));
export const short = (value: number): string => (Math.abs(value) < 10_000 ? number.format(value) : compact.format(value));

export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  let rest = value;
  for (const unit of ["B", "KiB", "MiB", "GiB", "TiB"]) {
    if (rest < 1024 || unit === "TiB") return `${rest < 10 && unit !== "B" ? rest.toFixed(1) : Math.round(rest)} ${unit}`;
    rest /= 1024;
  }
  return "";
}

/** How long: 850 ms, 12 s, 3 min, 5 h, 2 d. */
export function duration(ms: number | null | undefined): string {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86_400)} d`;
}

export const ago = (ts: number | null | undefined): string =>
  ts === null || ts === undefined ? "never" : `${duration(Math.max(0, Date.now() - ts))} ago`;

/** A time in the zone of the reader, to the second. */
export function stamp(ts: number): string {
  const date = new Date(ts);
  const two = (value: number): string => String(value).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

export const percent = (share: number): string => `${Math.round(share * 100)} %`;
