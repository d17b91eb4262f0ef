"""Which endpoint a path and method lead to. One table for all routes, so that 404, 405, HEAD, OPTIONS and the
route names of the metrics are decided in one place.

Paths are matched after percent-decoding, as the framework does it: segments are separated by "/", a `{parameter}`
is one non-empty segment, and a trailing slash is another path.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from broker.api import errors
from broker.api.answers import Answer
from broker.auth.table import Rule, is_named, rule_of

if TYPE_CHECKING:
    from broker.api.request import Request

Endpoint: TypeAlias = "Callable[[Request], Awaitable[Answer]]"


class Refuse(Protocol):
    """Makes the answer to a request that ended in an error. Never raises."""

    def __call__(self, error: Exception, *, request_id: str) -> Answer: ...


_PARAMETER: Final = "{}"


class Route:
    """One path template with its methods. `always` = answers while the engine is not ready.

    `named`: which of its parameters is the name of a topic or router. `refuse`: makes its answers to errors.
    """

    __slots__ = ("allow", "always", "endpoints", "named", "parameters", "refuse", "rules", "template")

    def __init__(self, template: str) -> None:
        self.template = template
        self.parameters = tuple(part[1:-1] for part in template.split("/") if part.startswith("{"))
        self.endpoints: dict[str, Endpoint] = {}
        self.rules: dict[str, Rule] = {}
        self.named = slice(0, 1) if is_named(template) else slice(0)
        self.refuse: Refuse = errors.answer
        self.always = False
        self.allow = ""

    def endpoint(self, method: str) -> Endpoint | None:
        """The endpoint for a method; HEAD is served by GET. None: the method is not allowed."""
        found = self.endpoints.get(method)
        if found is None and method == "HEAD":
            return self.endpoints.get("GET")
        return found

    def rule(self, method: str) -> Rule | None:
        """What the endpoint for a method takes. None: the method is not allowed."""
        return self.rules.get("GET" if method == "HEAD" else method)


class _Node:
    __slots__ = ("children", "route")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.route: Route | None = None


class RouteTable:
    """All routes, as a tree over path segments."""

    def __init__(self) -> None:
        self._root = _Node()

    def add(
        self, method: str, template: str, endpoint: Endpoint, *, always: bool = False, rule: Rule | None = None
    ) -> Route:
        """Register an endpoint. Two for one method and path are a mistake. Raises Unruled, unless a `rule` is given."""
        node = self._root
        for part in template.split("/")[1:]:
            node = node.children.setdefault(_PARAMETER if part.startswith("{") else part, _Node())
        route = node.route or Route(template)
        node.route = route
        if method in route.endpoints:
            raise ValueError(f"{method} {template} is there twice")
        route.endpoints[method] = endpoint
        route.rules[method] = rule or rule_of(method, template)
        route.always = route.always or always
        implied = ("HEAD", "OPTIONS") if "GET" in route.endpoints else ("OPTIONS",)
        route.allow = ", ".join(sorted((*route.endpoints, *implied)))
        return route

    def __iter__(self) -> Iterator[Route]:
        nodes = [self._root]
        while nodes:
            node = nodes.pop()
            nodes += node.children.values()
            if node.route is not None:
                yield node.route

    def match(self, path: str) -> tuple[Route, list[str]] | None:
        """The route of a path and the values of its parameters in order; None when there is none."""
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
