"""Backups on request: one at a time, to the directory that the settings allow."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import structlog

from storage import InvalidRequest, LimitReached, StorageError

if TYPE_CHECKING:
    from storage import Engine
    from storage.backup import Summary

_log = structlog.get_logger("broker")


class Failure(NamedTuple):
    """Why a backup has failed."""

    code: str
    message: str


class BackupJob:
    """A running or finished backup. `summary` or `failure` is set when it is finished."""

    def __init__(self, directory: str, include_cold: bool) -> None:
        self.directory = directory
        self.include_cold = include_cold
        self.done_bytes = 0
        self.total_bytes = 0
        self.summary: Summary | None = None
        self.failure: Failure | None = None

    @property
    def state(self) -> str:
        return "failed" if self.failure else "done" if self.summary else "running"


class BackupJobs:
    """Runs backups, and keeps the latest one. A backup continues if the client disconnects."""

    def __init__(self, engine: Engine, base: Path | None) -> None:
        self._engine = engine
        self._base = base
        self._latest: BackupJob | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, directory: str | None, *, include_cold: bool) -> BackupJob:
        """Start a backup, or return the running one if it has the same directory.

        Raises InvalidRequest for a directory that is not allowed, LimitReached during another backup, NotReady.
        """
        self._engine.check_open()
        path = self._allowed(directory)
        running = self._latest
        if running is not None and running.state == "running":
            if running.directory != path:
                raise LimitReached("Another backup is running; only one can run at a time.", limit="backups", max=1)
            return running
        job = self._latest = BackupJob(path, include_cold)
        self._task = asyncio.create_task(self._run(job), name="backup")
        return job

    def latest(self) -> BackupJob | None:
        """The running backup, or the last one since the broker was started."""
        job = self._latest
        if job is not None and (progress := self._engine.backups.progress) is not None:
            job.done_bytes, job.total_bytes = progress
        return job

    def _allowed(self, directory: str | None) -> str:
        if self._base is None:
            raise InvalidRequest(
                "This broker has no directory for backups: start it with TOPICS_BACKUP_DIR, which backups are written "
                "to, or below it.",
                field="directory",
            )
        base = os.path.realpath(self._base)
        path = os.path.realpath(os.path.join(base, directory or ""))
        if path != base and not path.startswith(base.rstrip("/") + "/"):
            raise InvalidRequest(
                f"directory: this broker only writes backups to {base} (TOPICS_BACKUP_DIR) and below.",
                field="directory",
            )
        return path

    async def _run(self, job: BackupJob) -> None:
        _log.info("backup_begun", directory=job.directory)
        try:
            job.summary = summary = await self._engine.backup(job.directory, include_cold=job.include_cold)
        except StorageError as error:
            job.failure = Failure(error.code, error.message)
            _log.error("backup_failed", directory=job.directory, error=error.message)
        except Exception as error:
            job.failure = Failure("internal", "Internal error; see the broker's log.")
            _log.error("backup_failed", directory=job.directory, exc_info=error)
        else:
            job.done_bytes = job.total_bytes = summary.copied_bytes
            _log.info(
                "backup_taken",
                directory=job.directory,
                number=summary.number,
                copied_bytes=summary.copied_bytes,
                reused_bytes=summary.reused_bytes,
                seconds=round(summary.seconds, 3),
            )
