"""The HTTP side: from bytes of a request to a call of `broker.service`, and back."""

from typing import TYPE_CHECKING

from broker.api.app import build_app
from broker.api.dispatch import Dispatcher
from broker.api.hot import Application, HotRequests, Sent
from broker.api.request import Request, by_name, has_hung_up, request_id

if TYPE_CHECKING:
    from broker.api.hot import Target

__all__ = [
    "Application",
    "Dispatcher",
    "HotRequests",
    "Request",
    "Sent",
    "Target",
    "build_app",
    "by_name",
    "has_hung_up",
    "request_id",
]
