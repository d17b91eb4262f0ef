"""The HTTP side: from bytes of a request to a call of `broker.service`, and back."""

from typing import TYPE_CHECKING

from broker.api.app import all_operations, build_app
from broker.api.dispatch import Dispatcher
from broker.api.events import EVENT_STREAM, PATIENCE_S, RETRY, check_accept, error_event
from broker.api.events import HEADERS as EVENT_STREAM_HEADERS
from broker.api.hot import MAX_HOT_BODY_BYTES, Application, Hot, HotRequests, Sent, direct_target
from broker.api.operation import Operation, Owner
from broker.api.request import ClientGone, Pending, Request, Result, by_name, has_hung_up, request_id
from broker.api.routing import RouteTable

if TYPE_CHECKING:
    from broker.api.hot import Target
    from broker.api.routing import Route

__all__ = [
    "EVENT_STREAM",
    "EVENT_STREAM_HEADERS",
    "MAX_HOT_BODY_BYTES",
    "PATIENCE_S",
    "RETRY",
    "Application",
    "ClientGone",
    "Dispatcher",
    "Hot",
    "HotRequests",
    "Operation",
    "Owner",
    "Pending",
    "Request",
    "Result",
    "Route",
    "RouteTable",
    "Sent",
    "Target",
    "all_operations",
    "build_app",
    "by_name",
    "check_accept",
    "direct_target",
    "error_event",
    "has_hung_up",
    "request_id",
]
