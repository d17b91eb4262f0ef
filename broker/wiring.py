"""The state that the parts of a running broker share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker.endpoint import Endpoint
from broker.kafka import MAY_USE, RECALL, Codecs, Described, KafkaMetrics, Packed, deciding
from broker.kafka.groups import CellOffsets, Coordinator, Limits, Offsets
from broker.kafka.share.cell_shares import CellShares
from broker.kafka.share.shares import Shares
from broker.live import Live
from broker.overview import Overview
from broker.pressure import Pressure
from broker.proxy import CellSources, Instances
from broker.scheduling import Heavy
from broker.service import BackupJobs
from storage import NotReady, ShuttingDown

if TYPE_CHECKING:
    from broker.cells import Cells, Owner
    from broker.settings import Settings
    from broker.tracing import Tracing
    from storage import Engine


class Broker(Endpoint):
    """The engine, the settings, and the objects of the process. Made once, before the engine starts."""

    __slots__ = (
        "backups",
        "engine",
        "kafka_codecs",
        "kafka_described",
        "kafka_groups",
        "kafka_lists",
        "kafka_metrics",
        "kafka_offsets",
        "kafka_packed",
        "kafka_shares",
        "live",
        "overview",
        "owner",
        "pressure",
        "proxy",
        "scraping",
        "unpacking",
    )

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        tracing: Tracing | None = None,
        cells: Cells | None = None,
        owner: Owner | None = None,
    ) -> None:
        """`cells`: the set that the engine is a cell of; None: it is alone. `owner`: the owner of the cell in a bucket
        whose engine this is."""
        super().__init__(settings, tracing, cells)
        self.engine = engine
        self.owner = owner
        self.may_answer = None if owner is None else owner.may_answer
        engine.tracer = tracing
        self.pressure = Pressure(
            engine,
            loop_lag_ms=settings.pressure_loop_lag_ms,
            commit_ms=settings.pressure_commit_ms,
            memory=lambda: self.memory.answers.fill,
        )
        self.live = Live(engine, self.pressure, self.memory, max_sessions=settings.max_watch_sessions)
        self.overview = Overview(
            engine,
            self.pressure,
            self.http_metrics,
            data_dir=settings.data_dir,
            uptime_ms=self.uptime_ms,
            streams=lambda: self.streams.parked,
        )
        self.backups = BackupJobs(engine, settings.backup_dir)
        #: One scrape is made at a time.
        self.scraping = asyncio.Lock()
        self.kafka_described = Described()
        self.kafka_offsets = Offsets(engine) if cells is None else CellOffsets(engine, cells, self.kafka_described)
        self.kafka_groups = _groups(engine, self.kafka_offsets, settings, cells)
        #: One large list is made at a time.
        self.kafka_lists = asyncio.Lock()
        most = settings.kafka_max_group_members
        self.kafka_shares = (
            Shares(engine, max_members=most) if cells is None else CellShares(engine, cells, max_members=most)
        )
        self.kafka_codecs = Codecs(engine)
        self.kafka_packed = Packed(Heavy())
        self.kafka_metrics = KafkaMetrics(self.kafka_groups, self.kafka_packed)
        self.proxy = Instances(
            engine,
            # Kafka clients can be in a group only if there is a port for them.
            None if settings.kafka_port is None else self.kafka_groups,
            idle_s=settings.kafka_rest_idle_s,
            most=settings.max_kafka_rest_instances,
            sources=None if cells is None else CellSources(engine, cells),
        )
        if cells is not None:
            cells.handlers[MAY_USE] = deciding(self)
            cells.handlers[RECALL] = self.kafka_described.recall
        #: Threads that read large record batches.
        self.unpacking = Heavy()

    def check_serving(self) -> None:
        """Raises NotReady, ShuttingDown."""
        if not self.engine.ready:
            if self.stopping:
                raise ShuttingDown
            raise NotReady(replay_progress=self.engine.recovery_progress)


def _groups(engine: Engine, offsets: Offsets, settings: Settings, cells: Cells | None) -> Coordinator:
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
        cells=cells,
    )
