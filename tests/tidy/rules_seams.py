"""What may be done in one place only: use the disk, read the time, name status codes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.tidy.rules_imports import imports, within
from tests.tidy.tree import Source

# Storage may use the functions of os that compute, and none that makes a system call on a file.
PURE_OS = {
    "cpu_count",
    "environ",
    "sched_getaffinity",
    "getpid",
    "register_at_fork",
    "fspath",
    "fsencode",
    "fsdecode",
    "strerror",
    "urandom",
    "sep",
    "PathLike",
}
PURE_OS_PATH = {"abspath", "basename", "dirname", "join", "normpath", "split", "splitext"}
DISK_MODULES = ("storage.platform.posix", "storage.platform.io")
CLOCK_MODULE = "storage.platform.clock"
WAITING = {("asyncio", "sleep"), ("loop", "time"), ("loop", "call_later"), ("loop", "call_at")}
STATUS_MODULE = "broker.content.errors"
STATUS_NAMES = ("http.HTTPStatus", "fastapi.status", "starlette.status")
ERROR_STATUS = {400, 401, 403, 404, 405, 406, 409, 412, 413, 415, 422, 429, 500, 501, 502, 503, 504, 507}


def attribute_path(node: ast.AST) -> tuple[str, ...]:
    """('os', 'path', 'join') for `os.path.join`; () for anything but plain names."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return (node.id, *reversed(names)) if isinstance(node, ast.Name) else ()


def disk_problems(source: Source) -> list[str]:
    """Direct use of the disk in storage, outside its seam."""
    if not within(source.module, "storage") or any(within(source.module, name) for name in DISK_MODULES):
        return []
    found: Iterator[tuple[int, str]] = (
        (node.lineno, path)
        for node in ast.walk(ast.parse(source.text))
        if isinstance(node, (ast.Attribute, ast.Call)) and (path := disk_use(node))
    )
    return [
        f"{source.path}:{line} {use} touches the disk: only storage/platform/posix.py and storage/platform/io do"
        for line, use in found
    ]


def disk_use(node: ast.Attribute | ast.Call) -> str:
    """The name of the function that uses the disk, '' if the node uses none."""
    if isinstance(node, ast.Call):
        return "open()" if isinstance(node.func, ast.Name) and node.func.id == "open" else ""
    path = attribute_path(node)
    if path[:2] == ("os", "path") and len(path) == 3 and path[2] not in PURE_OS_PATH:
        return ".".join(path)
    if path[:1] == ("os",) and len(path) == 2 and path[1] not in PURE_OS | {"path"}:
        return ".".join(path)
    return ""


def time_problems(source: Source) -> list[str]:
    """Reading the time or waiting in storage, outside the clock. (The import rules check imports.)"""
    if not within(source.module, "storage") or source.module == CLOCK_MODULE:
        return []
    nodes = list(ast.walk(ast.parse(source.text)))
    yields = {node.func for node in nodes if isinstance(node, ast.Call) and is_zero(node.args)}
    return [
        f"{source.path}:{node.lineno} {'.'.join(path)}: only storage/platform/clock.py knows the time"
        for node in nodes
        if isinstance(node, ast.Attribute) and node not in yields and (path := attribute_path(node))[-2:] in WAITING
    ]


def is_zero(arguments: list[ast.expr]) -> bool:
    """`sleep(0)` lets other tasks run and does not wait."""
    return len(arguments) == 1 and isinstance(arguments[0], ast.Constant) and arguments[0].value == 0


def status_problems(source: Source) -> list[str]:
    """Error status codes outside the table that maps errors to answers."""
    if not within(source.module, "broker") or source.module == STATUS_MODULE:
        return []
    why = "only broker/content/errors.py knows error status codes"
    nodes = list(ast.walk(ast.parse(source.text)))
    problems = [
        f"{source.path}:{line} imports {name}: {why}"
        for line, name in imports(source)
        if any(within(name, forbidden) for forbidden in STATUS_NAMES)
    ]
    # The framework's own exception may be named, to map it with the table, but not created.
    problems += [
        f"{source.path}:{node.lineno} makes an HTTPException: {why}"
        for node in nodes
        if isinstance(node, ast.Call) and attribute_path(node.func)[-1:] == ("HTTPException",)
    ]
    if within(source.module, "broker.api"):
        problems += [
            f"{source.path}:{node.lineno} has {node.value}: {why}"
            for node in nodes
            if isinstance(node, ast.Constant) and type(node.value) is int and node.value in ERROR_STATUS
        ]
    return problems
