"""The HTTP application: every route of this version."""

from __future__ import annotations

from functools import partial

from broker.api import control, proxy
from broker.api.dispatch import Dispatcher
from broker.api.docs import DocsPages
from broker.api.openapi import document
from broker.api.routes import append, claims, consumer_reads, reads, segments, sockets, watch, work
from broker.api.routing import RouteTable
from broker.server.http1 import WEBSOCKET_PATH
from broker.wiring import Broker


def build_app(broker: Broker) -> Dispatcher:
    """The ASGI application over an engine that may still be starting."""
    table = RouteTable()
    table.add("POST", "/v0/topics/{topic}", append.append)
    table.add("POST", "/v0/topics/{topic}/diff", reads.diff)
    table.add("GET", "/v0/topics/{topic}/records", reads.get_records)
    table.add("GET", "/v0/topics/{topic}/records/{seq}", reads.get_record)
    table.add("POST", "/v0/topics/{topic}/claim", claims.claim)
    table.add("POST", "/v0/topics/{topic}/ack", claims.ack)
    table.add("POST", "/v0/topics/{topic}/nack", claims.nack)
    table.add("POST", "/v0/topics/{topic}/extend", claims.extend)
    table.add("GET", "/v0/topics/{topic}/work", work.work)
    table.add("POST", "/v0/topics/{topic}/consumers/{consumer}/read", consumer_reads.read)
    table.add("POST", "/v0/topics/{topic}/consumers/{consumer}/commit", consumer_reads.commit)
    table.add("GET", "/v0/topics/{topic}/segments", segments.list_segments)
    table.add("GET", "/v0/topics/{topic}/segments/{first_seq}/data", segments.get_data)
    table.add("GET", "/v0/topics/{topic}/segments/{first_seq}/idx", segments.get_idx)
    table.add("GET", "/v0/watch/{wid}", watch.stream)
    table.add("GET", WEBSOCKET_PATH, sockets.without_upgrade)
    framework = control.control_plane()
    control.register(framework, table)
    proxy.register(table, broker.settings.kafka_rest_prefix or "")
    docs = DocsPages(partial(document, framework))
    table.add("GET", "/", docs.home)
    table.add("GET", "/docs", docs.page)
    table.add("GET", "/docs/{asset}", docs.asset)
    table.add("GET", "/openapi.json", docs.openapi)
    return Dispatcher(broker, table)
