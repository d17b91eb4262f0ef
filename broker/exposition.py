"""Everything `/v0/metrics` shows, gathered at the scrape: of the process, of HTTP, of the engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from broker import VERSION, process
from broker.auth.access import Access
from broker.auth.gate import Gate
from broker.live.hub import Live
from broker.metrics import Labels
from broker.pressure.watch import Pressure
from broker.wiring import Broker
from storage.metrics import Family, Sample

#: Labels whose values are names of topics and routers.
_NAMES: Final = frozenset({"topic", "router"})
MAX_KEY_SERIES: Final = 1000


def families(broker: Broker) -> Iterator[Family]:
    """All metrics; those of the engine also while it recovers."""
    engine = broker.engine
    ready = engine.ready and not broker.stopping and not engine.failed_shards
    parking, streams = broker.parking, broker.streams
    yield Family("topics_build_info", "gauge", "The version that runs.", [Sample((("version", VERSION),), 1)])
    for name, kind, help, value in (
        ("topics_uptime_seconds", "gauge", "Time since the start.", broker.uptime_ms() / 1000),
        ("topics_ready", "gauge", "Whether requests are served.", int(ready)),
        ("topics_parked_requests", "gauge", "Requests waiting for records or jobs.", parking.parked),
        ("topics_parked_refused", "counter", "Requests refused because too many were waiting.", parking.refused_total),
        ("topics_sse_connections", "gauge", "Open event streams.", streams.parked),
        ("topics_sse_refused", "counter", "Event streams refused because too many were open.", streams.refused_total),
        *_pressing(broker.pressure),
        *_watching(broker.live),
    ):
        yield Family(name, kind, help, [Sample((), value)])
    yield from process.families()
    yield from broker.http_metrics.families()
    yield from _holding(broker.gate)
    yield from engine.metrics()


def _pressing(pressure: Pressure) -> Iterator[tuple[str, str, str, float]]:
    governor = pressure.governor
    yield "topics_loop_lag_seconds", "gauge", "How late the event loop was, when last seen.", pressure.loop_lag_ms / 1e3
    yield "topics_pressure", "gauge", "Load as a share of what means refusing writes.", governor.pressure
    yield "topics_pressure_step", "gauge", "0 calm, 1 to 3 relieving, 4 refusing writes.", governor.step
    yield "topics_pressure_refused", "counter", "Writes refused under pressure.", pressure.refused_total


def reaching(found: Iterable[Family], access: Access) -> Iterator[Family]:
    """The same without what is about topics and routers that a caller's key is not for."""
    for family in found:
        samples = [sample for sample in family.samples if _reaches(access, sample.labels)] if access.prefixes else None
        yield family if samples is None else Family(family.name, family.kind, family.help, samples)


def _reaches(access: Access, labels: Labels) -> bool:
    return all(value.startswith(access.prefixes) for label, value in labels if label in _NAMES)


def _holding(gate: Gate | None) -> Iterator[Family]:
    callers = [] if gate is None else list(gate.callers())[:MAX_KEY_SERIES]
    of = f"of a key, by its place in the settings (the first {MAX_KEY_SERIES})"
    yield Family(
        "topics_key_inflight_requests",
        "gauge",
        f"Requests under way {of}.",
        [Sample((("key", str(caller.number)),), caller.inflight) for caller in callers],
    )
    yield Family(
        "topics_key_sse_connections",
        "gauge",
        f"Open event streams {of}.",
        [Sample((("key", str(caller.number)),), caller.streams.parked) for caller in callers],
    )


def _watching(live: Live) -> Iterator[tuple[str, str, str, float]]:
    sessions, figures, turns = live.sessions, live.figures, live.turns
    watched = sum(len(feed.subscriptions) for feed in live.feeds())
    yield "topics_watch_sessions", "gauge", "Watch sessions, those without a stream too.", len(sessions)
    yield "topics_watch_sessions_refused", "counter", "Sessions refused: too many were there.", sessions.refused_total
    yield "topics_watch_connections", "gauge", "Connections that watch, streams and WebSockets.", len(live.watchers)
    yield "topics_watch_subscriptions", "gauge", "Topics watched, each counted for each connection.", watched
    yield "topics_watch_reads", "counter", "Reads made for watchers, shared ones counted once.", figures.reads
    yield "topics_watch_pushed", "counter", "Record events sent in the moment of their commit.", figures.pushed
    yield "topics_watch_slow_closed", "counter", "Connections closed for not being read.", figures.slow_closed
    yield "topics_watch_turns_waiting", "gauge", "Pieces of delivery that wait for their turn.", turns.waiting
    yield "topics_watch_turn_waits", "counter", "Pieces of delivery that had to wait for their turn.", turns.waits_total
