"""The application of the gateway. It has every operation of the broker, with handlers that forward the request to a
cell, or ask several cells and merge their answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from broker.api import Dispatcher, Operation, Owner, Request, RouteTable, all_operations
from broker.api.routes import WEBSOCKET_PATH, without_upgrade
from broker.auth import ADMIN, NOTHING, Rule
from broker.cells import address_in, home_cell
from broker.content import Answer
from broker.gateway.asking import Asking
from broker.gateway.backups import Backups
from broker.gateway.forward import Forwarder
from broker.gateway.lists import Lists
from broker.gateway.locating import Locating
from broker.gateway.ordering import CELL_PATH, DRAIN_PATH, FINALIZE_PATH, Ordering
from broker.gateway.overviews import Overviews
from broker.gateway.proxying import Proxying
from broker.gateway.sockets import Sockets
from broker.gateway.status import Status
from broker.gateway.watching import Watching

if TYPE_CHECKING:
    from broker.gateway.gateway import Gateway
    from storage.bucket import Bucket

_Handler = Callable[[Request], "Answer | Awaitable[Answer]"]
CLUSTER_PATH: Final = "/v0/cluster"


class GatewayApp:
    """The parts of one gateway, and the dispatcher that calls them."""

    def __init__(self, gateway: Gateway, open_store: Callable[[], Bucket] | None = None) -> None:
        """`open_store`: opens the bucket of the cluster, if this is a node of one."""
        self.gateway = gateway
        self.forwarder = Forwarder(gateway)
        asking = Asking(gateway, self.forwarder)
        self.status = Status(gateway, self.forwarder, asking)
        overviews = Overviews(asking)
        lists, backups, proxying = Lists(asking), Backups(asking), Proxying(gateway, asking)
        locating = Locating(gateway, self.forwarder)
        watching = Watching(gateway, self.forwarder, asking, locating)
        sockets = Sockets(gateway, locating)
        prefix = gateway.settings.kafka_rest_prefix or ""
        #: Operations that ask all cells, by method and path.
        self._merged: dict[tuple[str, str], _Handler] = {
            ("GET", "/v0/topics"): lists.topics,
            ("GET", "/v0/routers"): lists.routers,
            ("GET", "/v0/consumers"): lists.consumers,
            ("GET", "/v0/health"): self.status.health,
            ("GET", "/healthz"): self.status.health,
            ("GET", "/v0/ready"): self.status.ready,
            ("GET", "/readyz"): self.status.ready,
            ("GET", "/v0/metrics"): self.status.metrics,
            ("GET", "/v0/overview"): overviews.overview,
            ("GET", "/v0/overview/history"): overviews.history,
            ("GET", "/v0/overview/stream"): overviews.stream,
            ("POST", "/v0/watch"): watching.create,
            ("GET", "/v0/watch/{wid}"): watching.stream,
            ("GET", WEBSOCKET_PATH): without_upgrade,
            ("POST", "/v0/admin/backup"): backups.begin,
            ("GET", "/v0/admin/backup"): backups.get,
            ("GET", f"{prefix}/topics"): lists.proxy_topics,
            ("GET", f"{prefix}/v3/clusters/{{cluster}}/topics"): lists.proxy_list,
            ("POST", f"{prefix}/v3/clusters/{{cluster}}/topics"): proxying.create_topic,
            ("GET", f"{prefix}/v3/clusters/{{cluster}}/brokers/{{broker}}/partition-replicas"): lists.proxy_list,
            ("GET", f"{prefix}/v3/clusters/{{cluster}}/consumer-groups"): lists.proxy_list,
        }
        own = [_own("GET", CLUSTER_PATH, self.status.cluster, Rule(NOTHING)), *_orders(Ordering(gateway, open_store))]
        self.dispatcher = Dispatcher(gateway, RouteTable([*self._operations(prefix), *own]), sockets.serve)

    def _operations(self, prefix: str) -> Iterator[Operation]:
        for each in all_operations(prefix, console=self.gateway.settings.console):
            yield msgspec.structs.replace(each, handler=self._handler(each), reads_body=True)

    def _handler(self, operation: Operation) -> _Handler:
        parameters = [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]
        forwarder = self.forwarder
        match operation.owner:
            case Owner.TOPIC:
                at = parameters.index("topic")
                if not operation.of_partition:
                    return lambda request: forwarder.to_topic(request, request.values[at])
                return lambda request: forwarder.to_topic(request, address_in(request.values[at], request.query_string))
            case Owner.GROUP:
                at, cells = parameters.index("group"), len(self.gateway.upstreams)
                return lambda request: forwarder.to_cell(request, home_cell(request.values[at], cells))
            case Owner.GRAPH:
                return lambda request: forwarder.to_cell(request, 0)
            case Owner.ANY:
                return forwarder.to_any
            case Owner.SELF:
                return operation.handler
            case Owner.ALL:
                return self._merged[operation.method, operation.path]


def _own(method: str, path: str, handler: _Handler, rule: Rule) -> Operation:
    """An operation that brokers without cells do not have."""
    return Operation(
        method=method, path=path, handler=handler, rule=rule, owner=Owner.ALL, always=True, reads_body=True
    )


def _orders(ordering: Ordering) -> Iterator[Operation]:
    admin = Rule(ADMIN)
    yield _own("PUT", CELL_PATH, ordering.move, admin)
    yield _own("DELETE", CELL_PATH, ordering.move_anywhere, admin)
    yield _own("POST", FINALIZE_PATH, ordering.finalize, admin)
    yield _own("PUT", DRAIN_PATH, ordering.drain, admin)
    yield _own("DELETE", DRAIN_PATH, ordering.fill, admin)
