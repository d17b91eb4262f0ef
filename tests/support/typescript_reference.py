"""Generates the reference of the TypeScript client from its sources: docs/reference/typescript-client.md.

It reads the declarations that `index.ts` exports, with their doc comments, and the schemas of the OpenAPI document that
they name. It needs no Node: the sources have one style, and what it cannot read raises ValueError.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

from broker.api.app import OPERATIONS
from broker.api.openapi import document
from tests.tidy.tree import ROOT

SOURCES: Final = ROOT / "clients/typescript/src"
#: Title, introduction, and the names in the section.
SECTIONS: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    ("Client", "", ("TopicsClient", "ClientOptions", "RetryPolicy", "bytesOf")),
    (
        "Records",
        "",
        ("NewRecord", "StoredRecord", "AppendOptions", "ReadOptions", "ReadAnswer", "Tombstone"),
    ),
    ("Watches", "", ("WatchTopics", "WatchStart", "WatchOptions", "WatchEvent")),
    (
        "Queues",
        "",
        ("Job", "Held", "ClaimOptions", "ClaimAnswer", "NackOptions", "SettleOptions", "RedriveOptions"),
    ),
    ("Workers", "", ("Worker", "WorkerOptions", "Handler", "JobContext", "GiveBack", "WorkerStopped")),
    (
        "Errors",
        "",
        (
            "TopicsError", "ConnectionFailed", "UnexpectedAnswer", "SeqOutOfRange", "ApiError", "RecordsLost",
            "LeaseLost", "Outcome", "ErrorCode",
        ),
    ),
)  # fmt: skip
#: Exported as a whole: what openapi-typescript makes of the document.
_GENERATED: Final = "./generated/api.js"
_LINE: Final = 110
_KINDS: Final = r"class|interface|type|function"
_REF: Final = re.compile(r"#/components/schemas/(\w+)")
_OPEN, _CLOSE = "([{", ")]}"


@dataclass(frozen=True, slots=True)
class Declaration:
    """`text` begins behind `export`. `doc` is the comment in front of it."""

    kind: str
    text: str
    doc: str


def page() -> str:
    """All sections."""
    found = exported()
    blocks = [block for title, text, names in SECTIONS for block in _section(title, text, names, found)]
    named = {name for block in blocks for name in re.findall(r'chemas"?\]?\["(\w+)"\]', block)}
    return "\n\n".join([*blocks, *_schemas(named)])


def undocumented() -> set[str]:
    """Names that `index.ts` exports and that no section has."""
    return {*exported()} - {name for _, _, names in SECTIONS for name in names}


def exported() -> dict[str, Declaration]:
    """What `index.ts` exports, by name."""
    index = (SOURCES / "index.ts").read_text()
    found: dict[str, Declaration] = {}
    for names, module in re.findall(r'export (?:type )?\{([^}]*)\} from "([^"]+)";', index):
        if module != _GENERATED:
            source = (SOURCES / module).with_suffix(".ts").read_text()
            found |= {name: declared(source, name) for name in names.replace(",", " ").split()}
    return found


def declared(source: str, name: str) -> Declaration:
    """The exported declaration of that name. Raises ValueError if there is none."""
    start = re.search(rf"^export ({_KINDS}) {name}\b", source, re.MULTILINE)
    if start is None:
        raise ValueError(f"no export of {name}")
    text = source[start.start() :].removeprefix("export ")
    end = _end(text, ";") if start[1] == "type" else _body(text)
    if start[1] in ("class", "interface"):
        end = _end(text, "}")
    return Declaration(start[1], text[:end].strip(), _doc(source[: start.start()]))


def members(text: str) -> Iterator[tuple[str, str]]:
    """The public members of a class with their doc comments: signatures as in a declaration file."""
    lines = text.split("\n")[1:-1]
    doc = ""
    at = 0
    while at < len(lines):
        rest = "\n".join(lines[at:])
        if not lines[at].strip() or lines[at].lstrip().startswith("//"):
            doc, at = "", at + 1
            continue
        if rest.lstrip().startswith("/**"):
            end = rest.index("*/") + 2
            doc, at = _doc(rest[:end]), at + rest[:end].count("\n") + 1
            continue
        if re.match(r"  (#|private |override name|readonly #|async #|async \*#|\*#)", lines[at]):
            at += _length(rest)
        else:
            yield _signature(rest[: _body(rest)]), doc
            at += _length(rest)
        doc = ""


def _section(title: str, text: str, names: tuple[str, ...], found: dict[str, Declaration]) -> Iterator[str]:
    yield f"## {title}"
    if text:
        yield text
    for name in names:
        yield f"### {name}"
        each = found[name]
        if each.kind == "class":
            yield _fenced(each.text.split(" {\n")[0])
            yield from _documented(each.doc)
            for signature, doc in members(each.text):
                yield _fenced(signature)
                yield from _documented(doc)
        else:
            yield _fenced(_signature(each.text) if each.kind == "function" else each.text)
            yield from _documented(each.doc)


def _documented(doc: str) -> Iterator[str]:
    if doc:
        yield _wrapped(doc)


def _schemas(names: set[str]) -> Iterator[str]:
    yield "## Schemas"
    yield "Those of the OpenAPI document that the types name. A field with `?` may be left out."
    every: dict[str, Any] = document(OPERATIONS)["components"]["schemas"]
    left, seen = names, set[str]()
    while left:
        seen |= left
        left = {ref for name in left for ref in _REF.findall(json.dumps(every[name]))} - seen
    for name in sorted(seen):
        schema = every[name]
        yield f"### Schemas: {name}"
        if text := schema.get("description"):
            yield _wrapped(text)
        required = schema.get("required", ())
        if rows := [_row(field, of, field in required) for field, of in schema.get("properties", {}).items()]:
            yield "\n".join(["| field | type | meaning |", "| --- | --- | --- |", *rows])
        else:
            yield _wrapped(f"`{_type(schema)}`")


def _row(field: str, of: dict[str, Any], is_required: bool) -> str:
    cells = (f"`{field}{'' if is_required else '?'}`", f"`{_type(of)}`", " ".join(of.get("description", "").split()))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _type(of: dict[str, Any]) -> str:
    if "$ref" in of:
        return of["$ref"].rpartition("/")[2]
    for key in ("anyOf", "oneOf", "allOf"):
        if key in of:
            return (" & " if key == "allOf" else " | ").join(dict.fromkeys(map(_type, of[key])))
    if "const" in of:
        return f'"{of["const"]}"'
    if "enum" in of:
        return " | ".join(f'"{value}"' for value in of["enum"])
    kind = of.get("type", "unknown")
    if kind == "array":
        return f"{_type(of.get('items', {}))}[]"
    return " | ".join(map(str, cast("list[Any]", kind))) if isinstance(kind, list) else str(kind)


def _doc(before: str) -> str:
    """The doc comment at the end of this text, as one paragraph."""
    comment = re.search(r"/\*\*((?:(?!\*/).)*)\*/\s*$", before, re.DOTALL)
    lines = comment[1].split("\n") if comment else []
    return " ".join(" ".join(line.strip().removeprefix("*").strip() for line in lines).split())


def _end(text: str, last: str) -> int:
    """Behind the first `last` outside of all brackets, or that closes the first bracket."""
    depth = 0
    for at, each in enumerate(_blank(text)):
        depth += (each in _OPEN) - (each in _CLOSE)
        if depth == 0 and each == last:
            return at + 1
    raise ValueError(f"no end of {text[:60]!r}")


def _body(text: str) -> int:
    """Where the body of a function begins, or behind the end of a field."""
    depth = 0
    plain = _blank(text)
    for at, each in enumerate(plain):
        if depth == 0 and each == ";":
            return at
        if depth == 0 and plain.startswith("{\n", at):
            return at
        if depth == 0 and each == "{" and re.match(r"\{.*\}\n", plain[at:] + "\n") and plain[at - 2] in ")>":
            return at
        depth += (each in _OPEN) - (each in _CLOSE)
    raise ValueError(f"no body of {text[:60]!r}")


def _length(text: str) -> int:
    """The lines of the member that this text begins with."""
    begin = _body(text)
    end = begin + (_end(text[begin:], "}") if text[begin] == "{" else 1)
    return text[:end].count("\n") + 1


def _blank(text: str) -> str:
    """The same length, without what is in comments and in strings."""
    return re.sub(
        r"""//[^\n]*|/\*.*?\*/|"[^"\n]*"|'[^'\n]*'|`[^`]*`""", lambda found: " " * len(found[0]), text, flags=re.DOTALL
    )


def _signature(text: str) -> str:
    """A declaration without its body: one parameter a line if it is long. Destructured parameters become `options`."""
    text = " ".join(text.split()).removeprefix("function ")
    text = re.sub(r"^(async )?\*?", "", text)
    begin = text.find("(")
    if begin < 0 or text.startswith("readonly ") or text.startswith("get "):
        return text.split(" = ")[0]
    end = begin + _end(text[begin:], ")")
    parameters = [_parameter(each) for each in _split(text[begin + 1 : end - 1])]
    one_line = f"{text[:begin]}({', '.join(parameters)}){text[end:]}"
    if len(one_line) <= _LINE:
        return one_line
    return f"{text[:begin]}(\n" + "".join(f"  {each},\n" for each in parameters) + f"){text[end:]}"


def _split(text: str) -> list[str]:
    """At the commas outside of all brackets."""
    parts, depth, begin = list[str](), 0, 0
    for at, each in enumerate(text + ","):
        depth += (each in _OPEN + "<") - (each in _CLOSE or (each == ">" and text[at - 1] != "="))
        if each == "," and depth == 0:
            parts.append(text[begin:at].strip())
            begin = at + 1
    return [part for part in parts if part]


def _parameter(text: str) -> str:
    name, hint = text.partition(": ")[::2]
    if text.startswith("{"):
        end = _end(text, "}")
        name, hint = "options", text[end:].removeprefix(": ")
    hint, equals, _ = hint.partition(" = ")
    if not hint:
        # The type is that of the default.
        name, equals, default = name.partition(" = ")
        hint = "number" if default.isdecimal() else "string"
    return f"{name}{'?' if equals else ''}: {hint}"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, _LINE, break_long_words=False, break_on_hyphens=False)


def _fenced(text: str) -> str:
    return f"```ts\n{text}\n```"
