"""What the engine counts about routers. See `storage.metrics`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from storage.metric_table import MAX_TOPIC_SERIES, METRICS, Family, Sample

if TYPE_CHECKING:
    from storage.engine import Engine
    from storage.routers.values import RouterState

#: Of each router: (metric, field of RouterState).
_FIGURES: Final = (
    ("topics_router_forwarded", "forwarded_total"),
    ("topics_router_lag", "lag"),
    ("topics_router_losses", "lost"),
    ("topics_router_hop_limited", "hop_limited"),
)


def collect_routers(engine: Engine) -> list[Family]:
    """Families about routers; none before the engine is ready."""
    if not engine.ready:
        return []
    states: list[RouterState] = engine.routers.page(limit=MAX_TOPIC_SERIES)
    labels = [(("router", state.name),) for state in states]
    blocked = [int(state.blocked is not None) for state in states]
    return [
        METRICS.whole("topics_routers", len(engine.catalog.routes.by_name)),
        METRICS.family("topics_router_blocked", map(Sample, labels, blocked)),
        *(
            METRICS.family(name, map(Sample, labels, [int(getattr(state, field)) for state in states]))
            for name, field in _FIGURES
        ),
    ]
