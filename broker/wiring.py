"""What the parts of a running broker share."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from broker.live.hub import Live
from broker.metrics import HttpMetrics
from broker.service.backups import BackupJobs
from broker.service.limits import Parking

if TYPE_CHECKING:
    from broker.settings import Settings
    from storage.engine import Engine


class Broker:
    """The engine, the settings, and what belongs to the process: made once, before the engine is started."""

    __slots__ = ("backups", "engine", "http_metrics", "live", "parking", "settings", "started", "stopping", "streams")

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self.engine = engine
        self.settings = settings
        self.parking = Parking(settings.max_parked)
        self.streams = Parking(
            settings.max_sse_connections, limit="max_sse_connections", are_there="event streams are open"
        )
        self.live = Live(engine, max_sessions=settings.max_watch_sessions)
        self.backups = BackupJobs(engine, settings.backup_dir)
        self.http_metrics = HttpMetrics()
        self.started = monotonic()
        #: True from the first signal on: not ready any more, but served until the sockets close.
        self.stopping = False

    @property
    def serving(self) -> bool:
        """Whether requests other than the probes are let through."""
        return self.engine.ready

    def uptime_ms(self) -> int:
        return int((monotonic() - self.started) * 1000)
