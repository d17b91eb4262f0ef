"""What the program logs: every call by name, level and fields. A call that does not state them as literals is a
problem."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from storage import Event
from tests.tidy.tree import Source

#: The name that a logger must have in a module, and the modules that may set up others.
LOGGER: Final = "_log"
SETUP: Final = "broker/telemetry/log_setup.py"
#: The names of the methods, and the levels that they log with.
LEVELS: Final = {"debug": "debug", "info": "info", "warning": "warning", "error": "error", "exception": "error"}
#: A traceback is not a field.
TRACEBACK: Final = "exc_info"


class Call(NamedTuple):
    """A call that logs."""

    where: str
    name: str
    level: str
    fields: frozenset[str]


def calls(source: Source) -> tuple[list[Call], list[str]]:
    """The calls that log in a file, and problems where the logging cannot be told without running it."""
    found: list[Call] = []
    tree = ast.parse(source.text)
    plain: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_logger(node.func.value):
            call = _call(source, node)
            if call is not None:
                found.append(call)
                plain.add(node.func.value)
    odd = [
        f"{source.path}:{node.lineno} logs in a way that says no name: _log.level('name', field=value)"
        for node in ast.walk(tree)
        if _is_logger(node) and isinstance(node.ctx, ast.Load) and node not in plain
    ]
    return found, [*odd, *_strangers(source, tree)]


def _is_logger(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == LOGGER


def _call(source: Source, node: ast.Call) -> Call | None:
    assert isinstance(node.func, ast.Attribute)
    name = node.args[0] if len(node.args) == 1 else None
    if not isinstance(name, ast.Constant) or not isinstance(name.value, str) or node.func.attr not in LEVELS:
        return None
    fields = {keyword.arg for keyword in node.keywords}
    if None in fields:
        return None
    named = frozenset(field for field in fields if field and field != TRACEBACK)
    return Call(f"{source.path}:{node.lineno}", name.value, LEVELS[node.func.attr], named)


def _strangers(source: Source, tree: ast.AST) -> Iterator[str]:
    """Loggers with another name, and uses of the library below them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and any(alias.name == "logging" for alias in node.names):
            if source.path != SETUP:
                yield f"{source.path}:{node.lineno} imports logging: only {SETUP} does"
        elif isinstance(node, ast.Assign | ast.AnnAssign) and _makes_logger(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if not all(isinstance(target, ast.Name) and target.id == LOGGER for target in targets):
                yield f"{source.path}:{node.lineno} has a logger that is not called {LOGGER}"
        elif isinstance(node, ast.Attribute) and _makes_logger(node.value):
            yield f"{source.path}:{node.lineno} has a logger without a name"


def _makes_logger(node: ast.AST | None) -> bool:
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("get_logger", "bind")
    )


def differences(logged: Iterable[Call], declared: Iterable[Event]) -> list[str]:
    """Where calls and declarations differ: names, levels, fields."""
    table = {event.name: event for event in declared}
    by_name: dict[str, list[Call]] = {}
    problems: list[str] = []
    for call in logged:
        by_name.setdefault(call.name, []).append(call)
        if call.name not in table:
            problems.append(f"{call.where} logs {call.name!r}, which is not declared")
    for name, event in table.items():
        there = by_name.get(name, [])
        if not there:
            problems.append(f"{name!r} is declared, and logged nowhere")
            continue
        for kind, meant, said in (
            ("levels", set(event.level.split(", ")), {call.level for call in there}),
            ("fields always there", _always(event), set.intersection(*(set(call.fields) for call in there))),
            ("fields", _fields(event), {field for call in there for field in call.fields}),
        ):
            if meant != said:
                problems.append(f"{name!r} is declared with {kind} {sorted(meant)}, and logged with {sorted(said)}")
    return problems


def _always(event: Event) -> set[str]:
    return {field for field in event.fields.split() if not field.startswith("[")}


def _fields(event: Event) -> set[str]:
    return {field.strip("[]") for field in event.fields.split()}
