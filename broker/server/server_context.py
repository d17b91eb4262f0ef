"""State that all connections of a server share: the limits for connections, heads and slow readers."""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import TYPE_CHECKING, Any

from broker.net import Quota

if TYPE_CHECKING:
    from broker.memory import Memory
    from broker.net import Arrivals
    from broker.settings import Settings
    from broker.telemetry import HttpMetrics


class ServerContext:
    """The state of one server."""

    __slots__ = (
        "answer_pace",
        "arrivals",
        "max_connections",
        "max_control_frames_per_s",
        "max_header_bytes",
        "may_answer",
        "memory",
        "metrics",
    )

    def __init__(
        self,
        settings: Settings,
        metrics: HttpMetrics,
        memory: Memory,
        arrivals: Arrivals,
        may_answer: Callable[[], bool] | None = None,
    ) -> None:
        """`may_answer`: whether an answer that was computed may be sent; None: always."""
        self.may_answer = may_answer
        self.max_connections = settings.max_connections
        self.max_control_frames_per_s = settings.max_control_frames_per_s
        self.max_header_bytes = settings.max_header_bytes
        self.answer_pace = Quota(settings.send_timeout_s, settings.min_bytes_per_s)
        self.arrivals = arrivals
        self.metrics = metrics
        self.memory = memory

    def refuses(self, connections: Sized, transport: Any) -> bool:
        """Whether there are too many connections. If so, close this one without an answer."""
        if not self.max_connections or len(connections) < self.max_connections:
            return False
        self.metrics.connections_refused += 1
        transport.abort()
        return True
