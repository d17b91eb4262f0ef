"""Which operation a path and method lead to. One table for all operations, so that 404, 405, HEAD, OPTIONS and the
route names of the metrics are decided in one place.

Paths are matched after percent-decoding, like in the framework: "/" separates segments, a `{parameter}` is one
non-empty segment, and a path with a trailing slash is a different path.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from broker.api.operation import Operation

_PARAMETER: Final = "{}"
#: The parameters with names that the prefixes of keys apply to.
_NAMED: Final = ("topic", "router")


class Route:
    """One path template with its operations by method.

    `named`: selects the parameter that names a topic or router; `has_topic`: it is a topic. `always`, `refuse`: those
    of its operations.
    """

    __slots__ = ("allow", "always", "has_topic", "named", "operations", "parameters", "refuse", "template")

    def __init__(self, first: Operation) -> None:
        self.template = first.path
        self.parameters = tuple(part[1:-1] for part in self.template.split("/") if part.startswith("{"))
        self.operations: dict[str, Operation] = {}
        at = next((at for at, parameter in enumerate(self.parameters) if parameter in _NAMED), None)
        self.named = slice(0) if at is None else slice(at, at + 1)
        self.has_topic = at is not None and self.parameters[at] == "topic"
        self.refuse = first.refuse
        self.always = False
        self.allow = ""

    def operation(self, method: str) -> Operation | None:
        """The operation of a method; GET serves HEAD too. None: the method is not allowed."""
        found = self.operations.get(method)
        if found is None and method == "HEAD":
            return self.operations.get("GET")
        return found

    def add(self, operation: Operation) -> None:
        if operation.method in self.operations:
            raise ValueError(f"{operation.method} {operation.path} occurs twice")
        self.operations[operation.method] = operation
        self.always = self.always or operation.always
        implied = ("HEAD", "OPTIONS") if "GET" in self.operations else ("OPTIONS",)
        self.allow = ", ".join(sorted((*self.operations, *implied)))


class _Node:
    __slots__ = ("children", "route")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.route: Route | None = None


class RouteTable:
    """All operations, as a tree of path segments. A method and path can have only one."""

    def __init__(self, operations: Iterable[Operation] = ()) -> None:
        self._root = _Node()
        for operation in operations:
            self.add(operation)

    def add(self, operation: Operation) -> None:
        node = self._root
        for part in operation.path.split("/")[1:]:
            node = node.children.setdefault(_PARAMETER if part.startswith("{") else part, _Node())
        if node.route is None:
            node.route = Route(operation)
        node.route.add(operation)

    def __iter__(self) -> Iterator[Route]:
        nodes = [self._root]
        while nodes:
            node = nodes.pop()
            nodes += node.children.values()
            if node.route is not None:
                yield node.route

    def match(self, path: str) -> tuple[Route, list[str]] | None:
        """The route of a path and the values of its parameters in order; None if no route matches."""
        node = self._root
        values: list[str] = []
        for part in path.split("/")[1:]:
            child = node.children.get(part) if part != _PARAMETER else None
            if child is None:
                child = node.children.get(_PARAMETER)
                if child is None or not part:
                    return None
                values.append(part)
            node = child
        return None if node.route is None else (node.route, values)
