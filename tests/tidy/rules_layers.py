"""The layers of storage and of the broker: a module imports from its own layer and those below it, never from above.

The names are those of the packages and modules directly below the folder. Names on one line are one layer, and packages
on it do not import one another. An import for type checkers alone counts like any other, because a module that is given
the engine does not show what it uses.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from tests.tidy.rules_imports import within
from tests.tidy.tree import Source

#: By folder, with the lowest layer first.
LAYERS: Final = {
    "storage": (
        "errors options telemetry",
        "platform format",
        "records bucket",
        "state",
        "log",
        "segments",
        "reads",
        "snapshot topics",
        "recovery queues",
        "consumers",
        "routers inspect",
        "backup embedded",
        "engine",
        "cells blocking",
        "offline",
        "__init__",
        "__main__",
    ),
    "broker": (
        "scheduling console __init__",
        "auth",
        "settings",
        "memory pressure tracing",
        "net",
        "content",
        "cluster",
        "cells",
        "telemetry",
        "service",
        "live overview",
        "kafka",
        "proxy",
        "endpoint",
        "wiring",
        "api",
        "server",
        "lifecycle",
        "cell supervisor",
        "node",
        "relay",
        "gateway",
        "__main__",
    ),
}
#: The files directly in a folder: what composes its packages, and what all of them need.
ROOT_FILES: Final = {
    "storage": frozenset({"__init__", "__main__", "engine", "errors", "options"}),
    "broker": frozenset({"__init__", "__main__", "cell", "endpoint", "lifecycle", "supervisor", "wiring"}),
}
_LAYER_OF: Final = {
    (folder, name): number
    for folder, lines in LAYERS.items()
    for number, line in enumerate(lines)
    for name in line.split()
}


def imports_within(source: Source, folder: str) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of what a file imports from that folder."""
    for node in ast.walk(ast.parse(source.text)):
        if isinstance(node, ast.ImportFrom) and node.module and within(node.module, folder):
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if within(alias.name, folder):
                    yield node.lineno, alias.name


def family(module: str) -> str:
    """The package or module directly below the folder that contains a dotted name."""
    return module.split(".")[1] if "." in module else "__init__"


def layer_problems(source: Source) -> list[str]:
    """Imports that go up or sideways, and packages without a layer."""
    folder = source.module.partition(".")[0]
    if folder not in LAYERS:
        return []
    own = family(source.module)
    is_root_file = source.path.count("/") == 1
    if is_root_file and source.path.rpartition("/")[2].removesuffix(".py") not in ROOT_FILES[folder]:
        return [f"{source.path}: put it into a package; the root of {folder} has only what composes the packages"]
    layer = _LAYER_OF.get((folder, own))
    if layer is None:
        return [f"{source.path}: {own} has no layer: say in tests/tidy/rules_layers.py what it may import"]
    problems: list[str] = []
    for line, name in imports_within(source, folder):
        other = family(name)
        if (folder, other) not in _LAYER_OF:
            other = "__init__"  # a name of the folder's own __init__
        if other == own:
            continue
        above = _LAYER_OF[folder, other] - layer
        if above >= 0:
            problems.append(f"{source.path}:{line} imports {name}: {other} is not below {own}")
    return problems
