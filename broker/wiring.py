"""The state that the parts of a running broker share."""

from __future__ import annotations

import asyncio
import socket
from time import monotonic
from typing import TYPE_CHECKING

from broker.auth import Gate
from broker.content import sites_of
from broker.heavy import Heavy
from broker.kafka import Codecs, KafkaMetrics, Packed
from broker.kafka.groups import Coordinator, Limits, Offsets
from broker.kafka.share.shares import Shares
from broker.limits import Parking
from broker.live import Live
from broker.memory import Memory
from broker.metrics import HttpMetrics
from broker.net import Arrivals, Quota
from broker.pressure import Pressure
from broker.proxy import Instances
from broker.service import BackupJobs

if TYPE_CHECKING:
    from broker.cells import Cells
    from broker.settings import Settings
    from broker.tracing import Tracing
    from storage import Engine


class Broker:
    """The engine, the settings, and the objects of the process. Made once, before the engine starts."""

    __slots__ = (
        "arrivals",
        "backups",
        "body_pace",
        "cells",
        "engine",
        "gate",
        "http_metrics",
        "kafka_codecs",
        "kafka_groups",
        "kafka_lists",
        "kafka_metrics",
        "kafka_offsets",
        "kafka_packed",
        "kafka_shares",
        "live",
        "memory",
        "parking",
        "pressure",
        "proxy",
        "scraping",
        "settings",
        "sites",
        "started",
        "stopping",
        "streams",
        "tracing",
        "unpacking",
    )

    def __init__(
        self, engine: Engine, settings: Settings, tracing: Tracing | None = None, cells: Cells | None = None
    ) -> None:
        """`cells`: the set that the engine is a cell of; None: it is alone."""
        self.engine = engine
        self.cells = cells
        self.settings = settings
        self.parking = Parking(settings.max_parked)
        self.streams = Parking(
            settings.max_sse_connections, limit="max_sse_connections", are_there="event streams are open"
        )
        self.memory = Memory(settings)
        self.arrivals = Arrivals()
        self.pressure = Pressure(
            engine,
            loop_lag_ms=settings.pressure_loop_lag_ms,
            commit_ms=settings.pressure_commit_ms,
            memory=lambda: self.memory.answers.fill,
        )
        self.live = Live(engine, self.pressure, self.memory, max_sessions=settings.max_watch_sessions)
        self.backups = BackupJobs(engine, settings.backup_dir)
        self.http_metrics = HttpMetrics()
        #: One scrape is made at a time.
        self.scraping = asyncio.Lock()
        self.kafka_offsets = Offsets(engine)
        self.kafka_groups = _groups(engine, self.kafka_offsets, settings)
        #: One large list is made at a time.
        self.kafka_lists = asyncio.Lock()
        self.kafka_shares = Shares(engine, max_members=settings.kafka_max_group_members)
        self.kafka_codecs = Codecs(engine)
        self.kafka_packed = Packed(Heavy())
        self.kafka_metrics = KafkaMetrics(self.kafka_groups, self.kafka_packed)
        self.proxy = Instances(
            engine,
            # Kafka clients can be in a group only if there is a port for them.
            None if settings.kafka_port is None else self.kafka_groups,
            idle_s=settings.kafka_rest_idle_s,
            most=settings.max_kafka_rest_instances,
        )
        #: Threads that read large record batches.
        self.unpacking = Heavy()
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
        #: Records spans; None, the default: nobody does.
        self.tracing = engine.tracer = tracing
        self.started = monotonic()
        #: True from the first signal on: the broker is no longer ready, but serves until the sockets close.
        self.stopping = False

    def uptime_ms(self) -> int:
        return int((monotonic() - self.started) * 1000)


def _groups(engine: Engine, offsets: Offsets, settings: Settings) -> Coordinator:
    limits = Limits(
        min_session_ms=settings.kafka_min_session_ms,
        max_session_ms=settings.kafka_max_session_ms,
        rebalance_delay_ms=settings.kafka_rebalance_delay_ms,
        max_members=settings.kafka_max_group_members,
    )
    return Coordinator(
        engine,
        offsets,
        limits=limits,
        retention_ms=settings.kafka_group_retention_s * 1000,
        max_groups=settings.kafka_max_groups,
    )
