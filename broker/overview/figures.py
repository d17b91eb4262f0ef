"""The figures of a broker at one moment. Counters start at 0 with the process; readers compute rates from two samples.

Walking over the topics costs time, so it goes in slices and ends after `MAX_TOPICS`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from itertools import chain, islice
from time import process_time
from typing import TYPE_CHECKING, Final

import msgspec

from broker.overview.busiest import Busiest, Busy
from broker.telemetry import process

if TYPE_CHECKING:
    from broker.pressure import Pressure
    from broker.telemetry import HttpMetrics
    from storage import Engine
    from storage.state import Topic

#: The most topics, and the most routers, that one sample looks at.
MAX_TOPICS: Final = 20_000
#: Topics that are looked at before other tasks run.
SLICE: Final = 128


class Named(msgspec.Struct):
    """The largest value of a kind, and the names of what has it: a topic, a consumer of it, or a router."""

    value: int = 0
    topic: str | None = None
    consumer: str | None = None
    router: str | None = None

    def raise_to(self, value: int, topic: str | None = None, consumer: str | None = None) -> None:
        """Take this value if it is larger."""
        if value > self.value:
            self.value, self.topic, self.consumer = value, topic, consumer


class Figures(msgspec.Struct, kw_only=True):
    """One sample. `partial`: there are more topics or routers than one sample looks at."""

    ts: int
    ready: bool
    # -- counters
    appended_records: int = 0
    read_records: int = 0
    wal_bytes: int = 0
    claimed_jobs: int = 0
    acked_jobs: int = 0
    nacked_jobs: int = 0
    expired_leases: int = 0
    http_requests: int = 0
    pressure_refused: int = 0
    evicted_records: int = 0
    corrupt_reads: int = 0
    cpu_seconds: float = 0.0
    # -- the process, its disk and its log
    uptime_ms: int = 0
    resident_bytes: int | None = None
    connections: int = 0
    streams: int = 0
    pressure: float = 0.0
    pressure_step: int = 0
    loop_lag_ms: float = 0.0
    disk_free_bytes: int | None = None
    disk_bytes: int | None = None
    shards: int = 0
    failed_shards: int = 0
    full_shards: int = 0
    # -- topics
    topics: int = 0
    live_bytes: int = 0
    queues: int = 0
    queues_paused: int = 0
    ready_jobs: int = 0
    leased_jobs: int = 0
    delayed_jobs: int = 0
    dead_pending_jobs: int = 0
    lost_jobs: int = 0
    oldest_job_ms: Named = msgspec.field(default_factory=Named)
    consumers: int = 0
    consumer_lag: Named = msgspec.field(default_factory=Named)
    routers: int = 0
    routers_blocked: int = 0
    router_lag: Named = msgspec.field(default_factory=Named)
    busiest: list[Busy] = msgspec.field(default_factory=list[Busy])
    partial: bool = False


def quick(engine: Engine, pressure: Pressure, http: HttpMetrics, figures: Figures) -> None:
    """Fill in what costs nothing: counters, and the figures of the process."""
    usage, stats = engine.logs.catalog.usage, engine.queues.stats
    figures.appended_records, figures.read_records = usage.traffic.appended, usage.traffic.read
    figures.evicted_records = sum(usage.traffic.evicted.values())
    figures.corrupt_reads, figures.live_bytes = usage.corrupt_reads, usage.bytes
    figures.claimed_jobs, figures.acked_jobs, figures.nacked_jobs = stats.claimed, stats.acked, stats.nacked
    figures.expired_leases = stats.expired
    figures.wal_bytes = sum(shard.log.stats.bytes for shard in engine.shards)
    figures.shards, figures.failed_shards = len(engine.shards), len(engine.failed_shards)
    figures.full_shards = sum(shard.log.full for shard in engine.shards)
    figures.http_requests, figures.connections = http.requests_total, sum(map(len, http.connections))
    figures.pressure, figures.pressure_step = round(pressure.governor.pressure, 3), int(pressure.governor.step)
    figures.pressure_refused, figures.loop_lag_ms = pressure.refused_total, round(pressure.loop_lag_ms, 1)
    figures.cpu_seconds, figures.resident_bytes = round(process_time(), 3), process.resident_bytes()
    figures.topics = engine.logs.catalog.size


async def collect(engine: Engine, figures: Figures, busiest: Busiest) -> None:
    """Fill in what takes a walk over topics and routers."""
    after, left = "", MAX_TOPICS
    while left:
        found = list(islice(engine.logs.catalog.named("", after), min(SLICE, left)))
        for topic in found:
            _add(engine, topic, figures)
            head = topic.log.head + sum(other.log.head for other in topic.others)
            busiest.see(topic.name, topic.log.epoch, head)
        left -= len(found)
        if len(found) < SLICE:
            break
        after = found[-1].name
        await asyncio.sleep(0)
    figures.partial = not left
    figures.busiest = busiest.finish(figures.ts)
    after, left = "", MAX_TOPICS
    while left:
        states = engine.routers.page(after=after, limit=min(SLICE, left))
        for state in states:
            figures.routers_blocked += state.blocked is not None
            if state.lag > figures.router_lag.value:
                figures.router_lag = Named(state.lag, topic=state.definition.source, router=state.name)
        figures.routers += len(states)
        left -= len(states)
        if len(states) < SLICE:
            break
        after = states[-1].name
        await asyncio.sleep(0)
    figures.partial |= not left


def _add(engine: Engine, topic: Topic, figures: Figures) -> None:
    if topic.log.queue is not None:
        queue = engine.queues.figures_of(topic)
        figures.queues += 1
        figures.queues_paused += queue.paused
        figures.ready_jobs += queue.ready
        figures.leased_jobs += queue.in_flight
        figures.delayed_jobs += queue.delayed
        figures.dead_pending_jobs += queue.dead_pending
        figures.lost_jobs += queue.lost
        figures.oldest_job_ms.raise_to(queue.oldest_ready_age_ms or 0, topic.name)
    partitions: Iterable[Topic] = chain((topic,), topic.others)
    for partition in partitions:
        for consumer in partition.log.consumers.named():
            figures.consumers += 1
            figures.consumer_lag.raise_to(partition.log.head - consumer.cursor_seq, topic.name, consumer.name)


def disk(directory: str) -> tuple[int | None, int | None]:
    """(free bytes, all bytes) of the disk with this directory; None where the system does not say. Blocks."""
    try:
        found = os.statvfs(directory)
    except OSError:
        return None, None
    return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
