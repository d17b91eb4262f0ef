"""Collects the metrics of `/v0/metrics` at each scrape: of the process, HTTP, Kafka clients and the engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from broker import VERSION
from broker.auth import Access, Gate
from broker.live import Live
from broker.memory import Memory
from broker.pressure import Pressure
from broker.telemetry import DEPRECATED, MAX_KEY_SERIES, METRICS, Labels, process
from broker.wiring import Broker
from storage import Family, Metric, Sample

#: Labels whose values are names of topics and routers.
_NAMES: Final = frozenset({"topic", "router"})


def families(broker: Broker) -> Iterator[Family]:
    """All metrics, renamed ones under both names. The engine's metrics exist even while it recovers."""
    return with_former_names(_families(broker), DEPRECATED)


def with_former_names(found: Iterable[Family], deprecated: Mapping[str, Metric]) -> Iterator[Family]:
    """The families; after each that was renamed, the same samples under its former name."""
    for family in found:
        yield family
        former = deprecated.get(family.name)
        if former is not None:
            yield Family(former.name, former.kind, former.help, family.samples)


def _families(broker: Broker) -> Iterator[Family]:
    engine = broker.engine
    ready = engine.ready and not broker.stopping and not engine.failed_shards
    yield METRICS.family("topics_build_info", [Sample((("version", VERSION),), 1)])
    yield METRICS.whole("topics_uptime_seconds", broker.uptime_ms() / 1000)
    yield METRICS.whole("topics_ready", int(ready))
    yield METRICS.whole("topics_parked_requests", broker.parking.parked)
    yield METRICS.whole("topics_parked_refused", broker.parking.refused_total)
    yield METRICS.whole("topics_sse_connections", broker.streams.parked)
    yield METRICS.whole("topics_sse_refused", broker.streams.refused_total)
    yield from _pressing(broker.pressure)
    yield from _remembering(broker.memory)
    yield from _watching(broker.live)
    yield from process.families()
    yield from broker.http_metrics.families()
    yield from broker.kafka_metrics.families()
    yield METRICS.whole("topics_kafka_rest_instances", len(broker.proxy))
    yield METRICS.whole("topics_kafka_rest_instances_expired", broker.proxy.expired_total)
    yield METRICS.whole("topics_kafka_rest_instances_refused", broker.proxy.refused_total)
    yield from _holding(broker.gate)
    yield from engine.metrics()
    if broker.owner is not None:
        yield from broker.owner.families()


def _pressing(pressure: Pressure) -> Iterator[Family]:
    yield METRICS.whole("topics_loop_lag_seconds", pressure.loop_lag_ms / 1e3)
    yield METRICS.whole("topics_pressure", pressure.governor.pressure)
    yield METRICS.whole("topics_pressure_step", pressure.governor.step)
    yield METRICS.whole("topics_pressure_refused", pressure.refused_total)


def _remembering(memory: Memory) -> Iterator[Family]:
    budgets = (("answers", memory.answers), ("bodies", memory.bodies))
    for name, field in (
        ("bytes", "held"),
        ("max_bytes", "total"),
        ("waiting", "waiting"),
        ("refused", "refused_total"),
    ):
        samples = [Sample((("of", of),), getattr(budget, field)) for of, budget in budgets]
        yield METRICS.family(f"topics_memory_{name}", samples)
    yield METRICS.whole("topics_stalled_clients", memory.stalled_total)


def reaching(found: Iterable[Family], access: Access) -> Iterator[Family]:
    """The families without the samples of topics and routers that the caller's key is not for."""
    for family in found:
        samples = [sample for sample in family.samples if _reaches(access, sample.labels)] if access.prefixes else None
        yield family if samples is None else Family(family.name, family.kind, family.help, samples)


def _reaches(access: Access, labels: Labels) -> bool:
    return all(value.startswith(access.prefixes) for label, value in labels if label in _NAMES)


def _holding(gate: Gate | None) -> Iterator[Family]:
    callers = [] if gate is None else list(gate.callers())[:MAX_KEY_SERIES]
    labels = [(("key", str(caller.number)),) for caller in callers]
    yield METRICS.family("topics_key_inflight_requests", map(Sample, labels, [each.inflight for each in callers]))
    yield METRICS.family("topics_key_sse_connections", map(Sample, labels, [each.streams.parked for each in callers]))


def _watching(live: Live) -> Iterator[Family]:
    sessions, figures, scheduler = live.sessions, live.figures, live.scheduler
    yield METRICS.whole("topics_watch_sessions", len(sessions))
    yield METRICS.whole("topics_watch_sessions_refused", sessions.refused_total)
    yield METRICS.whole("topics_watch_connections", len(live.watchers))
    yield METRICS.whole("topics_watch_subscriptions", sum(len(feed.subscriptions) for feed in live.feeds()))
    yield METRICS.whole("topics_watch_reads", figures.reads)
    yield METRICS.whole("topics_watch_pushed", figures.pushed)
    yield METRICS.whole("topics_watch_slow_closed", figures.slow_closed)
    yield METRICS.whole("topics_watch_deliveries_waiting", scheduler.waiting)
    yield METRICS.whole("topics_watch_delivery_waits", scheduler.waits_total)
