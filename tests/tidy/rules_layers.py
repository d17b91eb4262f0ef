"""The layers of storage: a module imports from its own layer and from those below it, never from above.

The names are those of the packages and modules directly below storage/; what is on one line is one layer, and the
packages on it do not import one another. An import for type checkers alone counts like any other: a part that is given
the engine says nothing of what it uses.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from tests.tidy.rules_imports import within
from tests.tidy.tree import Source

LAYERS: Final = (
    "config errors logged metric_table options tracing",
    "platform format",
    "records",
    "state",
    "log",
    "segments",
    "reads",
    "snapshot topics",
    "recovery queues",
    "consumers",
    "routers inspect",
    "backup embedded",
    "engine blocking commands metrics stopped __init__ __main__",
)
#: In these layers, modules may import one another.
_LOOSE: Final = (0, len(LAYERS) - 1)
_LAYER_OF: Final = {name: number for number, line in enumerate(LAYERS) for name in line.split()}


def storage_imports(source: Source) -> Iterator[tuple[int, str]]:
    """(line, dotted name of a module) of what a file imports from storage, for type checkers too."""
    for node in ast.walk(ast.parse(source.text)):
        if isinstance(node, ast.ImportFrom) and node.module and within(node.module, "storage"):
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)


def family(module: str) -> str:
    """The package or module directly below storage/ that a dotted name is in."""
    return module.split(".")[1] if "." in module else "__init__"


def layer_problems(source: Source) -> list[str]:
    """Imports that go up or sideways, and families that have no layer."""
    if not within(source.module, "storage"):
        return []
    own = family(source.module)
    if own not in _LAYER_OF:
        return [f"{source.path}: {own} has no layer: say in tests/tidy/rules_layers.py what it may import"]
    problems: list[str] = []
    for line, name in storage_imports(source):
        other = family(name)
        if not within(name, "storage") or other == own:
            continue
        above = _LAYER_OF.get(other, len(LAYERS)) - _LAYER_OF[own]
        if above > 0 or (above == 0 and _LAYER_OF[own] not in _LOOSE):
            problems.append(f"{source.path}:{line} imports {name}: {other} is not below {own}")
    return problems
