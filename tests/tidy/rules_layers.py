"""The layers of storage: a module imports from its own layer and from those below it, never from above.

The names are those of the packages and modules directly below storage/; what is on one line is one layer, and the
packages on it do not import one another. An import for type checkers alone counts like any other: a part that is given
the engine says nothing of what it uses. Some files have yet to be changed; they are named, and each must need it.
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
_ENGINE: Final = "storage.engine"
#: Files below the engine that still name it, for type checkers alone.
NAMES_ENGINE: Final = frozenset(
    {
        "storage/log/admission.py",
        "storage/log/append.py",
        "storage/log/coalescer.py",
        "storage/log/pending_losses.py",
        "storage/log/reservation.py",
        "storage/topics/admin.py",
        "storage/topics/expiry.py",
        "storage/topics/growth.py",
        "storage/topics/partitioner.py",
    }
)


def runtime_imports(source: Source) -> Iterator[tuple[int, str, bool]]:
    """(line, dotted name of a module, whether for type checkers alone) of what a file imports from storage."""

    def visit(node: ast.AST, typing: bool) -> Iterator[tuple[int, str, bool]]:
        for child in ast.iter_child_nodes(node):
            alone = typing or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test))
            if isinstance(child, ast.ImportFrom) and child.module and within(child.module, "storage"):
                for alias in child.names:
                    yield child.lineno, f"{child.module}.{alias.name}", alone
            elif isinstance(child, ast.Import):
                for alias in child.names:
                    yield child.lineno, alias.name, alone
            yield from visit(child, alone)

    yield from visit(ast.parse(source.text), False)


def family(module: str) -> str:
    """The package or module directly below storage/ that a dotted name is in."""
    return module.split(".")[1] if "." in module else "__init__"


def names_engine(source: Source) -> bool:
    """Whether a file imports the engine for type checkers alone."""
    return any(typing and within(name, _ENGINE) for _, name, typing in runtime_imports(source))


def layer_problems(source: Source) -> list[str]:
    """Imports that go up or sideways, and families that have no layer."""
    if not within(source.module, "storage"):
        return []
    own = family(source.module)
    if own not in _LAYER_OF:
        return [f"{source.path}: {own} has no layer: say in tests/tidy/rules_layers.py what it may import"]
    problems: list[str] = []
    for line, name, typing in runtime_imports(source):
        other = family(name)
        if not within(name, "storage") or other == own:
            continue
        if typing and within(name, _ENGINE) and source.path in NAMES_ENGINE:
            continue
        above = _LAYER_OF.get(other, len(LAYERS)) - _LAYER_OF[own]
        if above > 0 or (above == 0 and _LAYER_OF[own] not in _LOOSE):
            problems.append(f"{source.path}:{line} imports {name}: {other} is not below {own}")
    return problems
