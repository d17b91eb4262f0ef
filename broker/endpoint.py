"""The parts of every process with an HTTP port. An engine (`broker.wiring`) or the cells of a set (`broker.gateway`)
answer its requests.
"""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from time import monotonic
from typing import TYPE_CHECKING

from broker.auth import Gate
from broker.content import sites_of
from broker.memory import Memory
from broker.net import Arrivals, Quota
from broker.scheduling import Parking
from broker.telemetry import HttpMetrics

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.cells import Cells
    from broker.settings import Settings
    from broker.tracing import Tracing


class Endpoint(ABC):
    """The settings, and the objects that requests of all kinds share."""

    __slots__ = (
        "arrivals",
        "body_pace",
        "cells",
        "gate",
        "http_metrics",
        "may_answer",
        "memory",
        "parking",
        "settings",
        "sites",
        "started",
        "stopping",
        "streams",
        "tracing",
    )

    def __init__(self, settings: Settings, tracing: Tracing | None = None, cells: Cells | None = None) -> None:
        """`cells`: the set to which this process's engine belongs; None: no engine, or an engine without a set."""
        self.cells = cells
        self.settings = settings
        #: Whether an answer that was computed may be sent; None: always. See `storage.cells.owner`.
        self.may_answer: Callable[[], bool] | None = None
        self.parking = Parking(settings.max_parked)
        self.streams = Parking(
            settings.max_sse_connections, limit="max_sse_connections", are_there="event streams are open"
        )
        self.memory = Memory(settings)
        self.arrivals = Arrivals()
        self.http_metrics = HttpMetrics()
        #: The minimum rate at which the body of a request has to arrive.
        self.body_pace = Quota(settings.body_timeout_s, settings.min_bytes_per_s)
        keys = settings.all_keys()
        #: None: there are no keys, and everything is allowed.
        self.gate = (
            Gate(
                keys,
                probe_auth=settings.probe_auth,
                max_inflight=settings.max_inflight_per_key,
                max_streams=settings.max_sse_connections_per_key,
            )
            if keys
            else None
        )
        self.sites = sites_of(settings, socket.gethostname())
        #: Records spans. None, the default: tracing is off.
        self.tracing = tracing
        self.started = monotonic()
        #: True from the first signal on: the process is no longer ready, but serves until the sockets close.
        self.stopping = False

    def uptime_ms(self) -> int:
        return int((monotonic() - self.started) * 1000)

    @abstractmethod
    def check_serving(self) -> None:
        """Raises NotReady, ShuttingDown while requests cannot be served."""
