"""What the engine counts about routers. See `storage.metrics`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from storage.metrics import MAX_TOPIC_SERIES, Family, HistogramSample, Sample

if TYPE_CHECKING:
    from storage.engine import Engine
    from storage.routers.values import RouterState

_FIGURES: Final = (
    ("topics_router_forwarded", "counter", "forwarded_total", "Copies made, over restarts"),
    ("topics_router_lag", "gauge", "lag", "Seqs of the source that are still to be examined"),
    ("topics_router_losses", "counter", "lost", "Times that a loss had to be written in place of copies"),
    ("topics_router_hop_limited", "counter", "hop_limited", "Records not copied for having come too far"),
)


def collect_routers(engine: Engine) -> list[Family]:
    """Families about routers; none before the engine is ready."""
    if not engine.ready:
        return []
    states: list[RouterState] = engine.routers.page(limit=MAX_TOPIC_SERIES)
    labels = [(("router", state.name),) for state in states]
    help = f"(the first {MAX_TOPIC_SERIES} routers)."
    blocked: list[Sample | HistogramSample] = [
        Sample(label, int(state.blocked is not None)) for label, state in zip(labels, states, strict=True)
    ]
    return [
        Family("topics_routers", "gauge", "Routers there are.", [Sample((), len(engine.catalog.routes.by_name))]),
        Family("topics_router_blocked", "gauge", f"1 while dest does not take its copies {help}", blocked),
        *(
            Family(
                name,
                kind,
                f"{text} {help}",
                [Sample(label, int(getattr(state, field))) for label, state in zip(labels, states, strict=True)],
            )
            for name, kind, field, text in _FIGURES
        ),
    ]
