"""The HTTP application: every operation of this version, in one table."""

from __future__ import annotations

from functools import partial

from broker.api import proxy
from broker.api.console import ConsolePages
from broker.api.dispatch import Dispatcher
from broker.api.docs import DocsPages
from broker.api.openapi import document
from broker.api.operation import Operation
from broker.api.routes import (
    append,
    backups,
    claims,
    consumer_reads,
    consumers,
    health,
    metrics,
    overview,
    queues,
    reads,
    routers,
    segments,
    sockets,
    topics,
    watch,
    work,
)
from broker.api.routing import RouteTable
from broker.wiring import Broker

#: The operations of the broker's own API, in the order of the OpenAPI document.
OPERATIONS: tuple[Operation, ...] = (
    *topics.operations,
    *queues.operations,
    *routers.operations,
    *consumers.operations,
    *watch.operations,
    *backups.operations,
    *health.operations,
    *metrics.operations,
    *overview.operations,
    *append.OPERATIONS,
    *reads.OPERATIONS,
    *claims.OPERATIONS,
    *work.OPERATIONS,
    *consumer_reads.OPERATIONS,
    *segments.OPERATIONS,
    *watch.OPERATIONS,
    *sockets.OPERATIONS,
    *overview.OPERATIONS,
)


def all_operations(prefix: str, *, console: bool = True) -> tuple[Operation, ...]:
    """Every operation, with those of the REST Proxy below `prefix`, the pages of the documentation, and the console."""
    docs = DocsPages(partial(document, OPERATIONS))
    pages = ConsolePages().operations() if console else ()
    return *OPERATIONS, *proxy.operations(prefix), *docs.operations(), *pages


def build_app(broker: Broker) -> Dispatcher:
    """The ASGI application over an engine that may still be starting."""
    settings = broker.settings
    return Dispatcher(broker, RouteTable(all_operations(settings.kafka_rest_prefix or "", console=settings.console)))
