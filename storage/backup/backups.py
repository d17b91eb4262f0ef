"""The backups of one engine, one at a time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from storage.backup.copying import Going
from storage.backup.errors import BackupFailed, BackupRefused
from storage.backup.taking import BackupSource, Summary, Taking
from storage.backup.taking import Target as TakingTarget
from storage.backup.target import Target
from storage.errors import LimitReached
from storage.segments.tiering import NamedTier


class Backups:
    """Belongs to the event loop, except for the pins."""

    def __init__(self, source: BackupSource) -> None:
        self._source = source
        self._logs = source.segments.logs
        #: The files that the backup in progress protects from removal and change.
        self.pins = source.segments.pins
        self._taking: Taking | None = None
        self._task: asyncio.Task[Summary] | None = None
        #: Counters for the metrics.
        self.taken = 0
        self.failed = 0
        self.newest_ms = 0

    @property
    def ready(self) -> bool:
        """Whether the engine is ready, and a backup can be taken."""
        return self._logs.ready

    @property
    def progress(self) -> tuple[int, int] | None:
        """(bytes done, bytes in all as far as is known) of the backup in progress; None: there is none."""
        taking = self._taking
        return None if taking is None else (taking.done_bytes, max(taking.total_bytes, taking.done_bytes))

    async def take(
        self,
        directory: str | os.PathLike[str],
        *,
        include_cold: bool = False,
        at_instant: Callable[[], None] = lambda: None,
    ) -> Summary:
        """Back up everything as of one instant; durable on return. Writers do not wait for it.

        Earlier backups in the directory stay valid, whatever happens. `at_instant` is called on the loop at the
        instant. Cold segments are referred to, or copied with `include_cold`, and if the tier is the bucket of a cell.

        Raises BackupRefused (nothing was changed), BackupFailed, LimitReached during another backup, ShuttingDown,
        StorageFailed when a shard of the log has stopped.
        """
        self._logs.check_open()
        root = self._logs.runtime.path
        path = _absolute(directory)
        if lies_within(path, root) or lies_within(root, path):
            raise BackupRefused(f"{path} and the data directory {root} must not contain one another.")
        if self._taking is not None:
            raise LimitReached("A backup is in progress; only one can run at a time.", limit="backups", max=1)
        runtime, cluster_id = self._logs.runtime, self._source.cluster_id()
        # What a cell in a bucket has stored is deleted when its bases do not name it any more.
        include_cold = include_cold or isinstance(self._source.segments.store.cold, NamedTier)
        taking = Taking(
            self._source,
            lambda going: Target(runtime.fs, path, cluster_id, going),
            include_cold=include_cold,
            at_instant=at_instant,
        )
        summary = await self._run(taking)
        self.taken += 1
        self.newest_ms = summary.taken_ms
        return summary

    async def take_base(
        self, make_target: Callable[[Going], TakingTarget], *, clean: bool = False
    ) -> tuple[list[int], list[int]]:
        """Put everything but the log into a target, durable on return. Raises as `take`.

        `clean`: the engine stops, and this is its last snapshot: see `Engine.close`.
        Returns LSNs for each shard: where the log must be replayed from, and the instant that the segments are as of.
        The log is durable up to there.
        """
        if not clean:
            self._logs.check_open()
        if self._taking is not None:
            raise LimitReached("A backup is in progress; only one can run at a time.", limit="backups", max=1)
        taking = Taking(
            self._source, make_target, include_cold=True, at_instant=lambda: None, with_log=False, clean=clean
        )
        await self._run(taking)
        return taking.redo, taking.ends

    async def _run(self, taking: Taking) -> Summary:
        self._taking = taking
        self._task = asyncio.ensure_future(taking.run())
        try:
            return await asyncio.shield(self._task)
        except asyncio.CancelledError:
            await self.stop()
            raise
        except BaseException:
            self.failed += 1
            raise
        finally:
            self._taking = self._task = None

    async def stop(self) -> None:
        """Abandon the backup in progress. On return it uses no file."""
        taking, task = self._taking, self._task
        if taking is None or task is None:
            return
        taking.stopping = True
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # the caller of `take` gets it


def lies_within(path: str, folder: str) -> bool:
    """Whether it is the folder or below it; both absolute."""
    return (path.rstrip("/") + "/").startswith(folder.rstrip("/") + "/")


def _absolute(path: str | os.PathLike[str]) -> str:
    return os.path.abspath(os.fspath(path))


__all__ = ["BackupFailed", "BackupRefused", "Backups", "Summary"]
