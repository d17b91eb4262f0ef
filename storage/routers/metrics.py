"""Metrics of routers."""

from __future__ import annotations

from typing import Final

from storage.log import Logs
from storage.routers.routers import Routers
from storage.state.routers import RouterState
from storage.telemetry import MAX_TOPIC_SERIES, METRICS, Family, Sample

#: Of each router: (metric, field of RouterState).
_FIGURES: Final = (
    ("topics_router_forwarded", "forwarded_total"),
    ("topics_router_lag", "lag"),
    ("topics_router_losses", "lost"),
    ("topics_router_hop_limited", "hop_limited"),
)


def collect_routers(logs: Logs, routers: Routers) -> list[Family]:
    """Metric families of routers; none before the engine is ready."""
    if not logs.ready:
        return []
    states: list[RouterState] = routers.page(limit=MAX_TOPIC_SERIES)
    labels = [(("router", state.name),) for state in states]
    blocked = [int(state.blocked is not None) for state in states]
    return [
        METRICS.whole("topics_routers", len(logs.catalog.routes.by_name)),
        METRICS.whole("topics_router_write_waits", logs.catalog.routes.held_back),
        METRICS.family("topics_router_blocked", map(Sample, labels, blocked)),
        *(
            METRICS.family(name, map(Sample, labels, [int(getattr(state, field)) for state in states]))
            for name, field in _FIGURES
        ),
    ]
