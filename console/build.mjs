// Builds the console into broker/console/static: a page, a script and a style, and the gzip of each.
// Scripts and styles have a hash of their content in their names, so that browsers may keep them forever.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const target = join(here, "..", "broker", "console", "static");
/** The most bytes of all files, packed. */
const MAX_BYTES = 150_000;

const built = await build({
  entryPoints: { app: join(here, "src", "main.tsx"), style: join(here, "src", "style.css") },
  bundle: true,
  minify: true,
  write: false,
  outdir: target,
  format: "esm",
  target: ["es2022", "chrome109", "firefox115", "safari16"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  nodePaths: [join(here, "node_modules")],
});

const files = new Map();
const names = {};
for (const { path, contents } of built.outputFiles) {
  const [, stem, ending] = /(\w+)\.(\w+)$/.exec(path);
  const hash = createHash("sha256").update(contents).digest("hex").slice(0, 12);
  names[`${stem}.${ending}`] = `${stem}-${hash}.${ending}`;
  files.set(names[`${stem}.${ending}`], Buffer.from(contents));
}
files.set("icon.svg", readFileSync(join(here, "src", "icon.svg")));
const page = readFileSync(join(here, "src", "index.html"), "utf8").replace(/\{(\w+\.\w+)\}/g, (_, name) => names[name]);
files.set("index.html", Buffer.from(page));

rmSync(target, { recursive: true, force: true });
mkdirSync(target, { recursive: true });
let total = 0;
for (const [name, content] of files) {
  const packed = gzipSync(content, { level: 9 });
  total += packed.length;
  writeFileSync(join(target, name), content);
  writeFileSync(join(target, `${name}.gz`), packed);
}
console.log(`Built the console: ${(total / 1000).toFixed(1)} kB, packed.`);
if (total > MAX_BYTES) {
  console.error(`That is more than ${MAX_BYTES / 1000} kB.`);
  process.exit(1);
}
