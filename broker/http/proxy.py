"""The routes of the REST Proxy: below its prefix, refusing in its own words."""

from __future__ import annotations

from typing import Final

from broker.auth.table import rule_of
from broker.http.routes import proxy_consumers as consumers
from broker.http.routes import proxy_topics as topics
from broker.http.routing import Endpoint, Refuse, RouteTable
from broker.proxy.errors import answer_v2

_G: Final = "/consumers/{group}"
_I: Final = f"{_G}/instances/{{instance}}"
_T: Final = "/topics/{topic}"
_P: Final = f"{_T}/partitions/{{partition}}"

_V2: Final[tuple[tuple[str, str, Endpoint], ...]] = (
    ("GET", "/topics", topics.list_topics),
    ("GET", _T, topics.get_topic),
    ("POST", _T, topics.produce_to_topic),
    ("GET", f"{_T}/partitions", topics.list_partitions),
    ("GET", _P, topics.get_partition),
    ("POST", _P, topics.produce_to_partition),
    ("GET", f"{_P}/offsets", topics.get_offsets),
    ("GET", f"{_P}/records", topics.read_partition),
    ("GET", "/brokers", topics.list_brokers),
    ("POST", _G, consumers.create),
    ("DELETE", _I, consumers.delete),
    ("POST", f"{_I}/subscription", consumers.subscribe),
    ("GET", f"{_I}/subscription", consumers.get_subscription),
    ("DELETE", f"{_I}/subscription", consumers.unsubscribe),
    ("POST", f"{_I}/assignments", consumers.assign),
    ("GET", f"{_I}/assignments", consumers.get_assignments),
    ("GET", f"{_I}/records", consumers.read),
    ("POST", f"{_I}/offsets", consumers.commit),
    ("GET", f"{_I}/offsets", consumers.get_committed),
    ("POST", f"{_I}/positions", consumers.seek),
    ("POST", f"{_I}/positions/beginning", consumers.seek_to_beginning),
    ("POST", f"{_I}/positions/end", consumers.seek_to_end),
)


def register(table: RouteTable, prefix: str) -> None:
    """Enter the proxy's routes in the table."""
    _enter(table, prefix, _V2, answer_v2)


def _enter(table: RouteTable, prefix: str, routes: tuple[tuple[str, str, Endpoint], ...], refuse: Refuse) -> None:
    for method, template, endpoint in routes:
        route = table.add(method, prefix + template, endpoint, rule=rule_of(method, template))
        route.refuse = refuse
        if "topic" in route.parameters:
            at = route.parameters.index("topic")
            route.named = slice(at, at + 1)
