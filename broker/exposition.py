"""Everything `/v0/metrics` shows, gathered at the scrape: of the process, of HTTP, of the engine."""

from __future__ import annotations

from collections.abc import Iterator

from broker import VERSION
from broker.wiring import Broker
from storage.metrics import Family, Sample


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
    ):
        yield Family(name, kind, help, [Sample((), value)])
    yield from broker.http_metrics.families()
    yield from engine.metrics()
