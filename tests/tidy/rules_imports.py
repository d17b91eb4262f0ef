"""Which modules may import which (docs/adr gives the reasons), as a table.

A rule reads: modules within `scope`, except those in `but`, must not import `never`; or, with `only`, they may import
only that and the standard library.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from tests.tidy.tree import Source

OURS = ("broker", "demo", "kernel", "loadtest", "pipeline", "schemas", "storage", "tests", "topics_client")
WEB = ("fastapi", "starlette", "uvicorn", "httptools", "zttp", "h2", "h11", "httpx", "websockets")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    scope: str
    why: str
    never: tuple[str, ...] = ()
    only: tuple[str, ...] | None = None
    but: tuple[str, ...] = ()


RULES = (
    Rule(
        scope="storage",
        never=("broker", "demo", "loadtest", "pipeline", "schemas", "tests", "topics_client", "pydantic", *WEB),
        why="the engine is embeddable: it knows nothing of those who use it",
    ),
    Rule(
        scope="storage.format",
        only=("storage.format", "kernel", "xxhash", "msgspec"),
        why="bytes are read and written by pure functions",
    ),
    Rule(
        scope="kernel",
        only=("kernel", "xxhash", "msgspec"),
        why="it is below everything else, and as pure as the formats",
    ),
    Rule(
        scope="schemas",
        never=tuple(name for name in OURS if name != "schemas"),
        why="the shapes of requests and answers depend on nothing of ours",
    ),
    Rule(
        scope="broker",
        never=("demo", "loadtest", "pipeline", "tests", "topics_client"),
        why="the server needs none of them",
    ),
    Rule(scope="broker.service", never=(*WEB, "broker.api"), why="what is done does not know how it was asked for"),
    Rule(
        scope="topics_client",
        never=tuple(name for name in OURS if name != "topics_client"),
        why="it is installed alone, and talks to any server of the API",
    ),
    Rule(scope="pipeline", never=("broker", "tests"), why="it reads through the public API and the file formats"),
    Rule(
        scope="storage",
        never=("fcntl", "mmap", "tempfile", "shutil", "glob", "pathlib"),
        but=("storage.platform.posix", "storage.platform.io"),
        why="all disk access goes through the one seam that says what a crash keeps",
    ),
    Rule(
        scope="storage",
        never=("time", "datetime"),
        but=("storage.platform.clock",),
        why="time is injected, so that tests never wait for it",
    ),
)


def within(module: str, scope: str) -> bool:
    """Whether a dotted name is `scope` or below it."""
    return module == scope or module.startswith(scope + ".")


def imports(source: Source) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of all that a file imports, anywhere in it; `from a import b` gives a.b."""
    is_package = source.path.endswith("/__init__.py")
    for node in ast.walk(ast.parse(source.text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = source.module.split(".")
                parent = parts[: len(parts) - node.level + (1 if is_package else 0)]
                base = ".".join([*parent, base] if base else parent)
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


def import_problems(source: Source) -> list[str]:
    """Compare what a file imports with the rules. Returns each violation with its line and the reason."""
    problems: list[str] = []
    for rule in RULES:
        if not within(source.module, rule.scope) or any(within(source.module, name) for name in rule.but):
            continue
        for line, name in imports(source):
            if any(within(name, forbidden) for forbidden in rule.never):
                problems.append(f"{source.path}:{line} imports {name}: {rule.why}")
            elif rule.only is not None and not allowed(name, rule.only):
                problems.append(f"{source.path}:{line} imports {name}, not one of {rule.only}: {rule.why}")
    return problems


def allowed(name: str, only: tuple[str, ...]) -> bool:
    """Whether `name` is of the standard library or within `only`."""
    return name.partition(".")[0] in sys.stdlib_module_names or any(within(name, scope) for scope in only)
