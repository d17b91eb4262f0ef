"""Backups that a request asks for: one at a time, into the one place that the settings allow."""

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
    """Why a backup is none."""

    code: str
    message: str


class BackupJob:
    """One backup, under way or over. `summary` or `failure` is set when it is over."""

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
    """The latest job. It goes on when whoever asked for it goes away."""

    def __init__(self, engine: Engine, base: Path | None) -> None:
        self._engine = engine
        self._base = base
        self._latest: BackupJob | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, directory: str | None, *, include_cold: bool) -> BackupJob:
        """Begin a backup; the one under way, if it goes to the same directory.

        Raises InvalidRequest where the broker may not write, LimitReached while there is another backup, NotReady.
        """
        self._engine.check_open()
        path = self._allowed(directory)
        running = self._latest
        if running is not None and running.state == "running":
            if running.directory != path:
                raise LimitReached("A backup is under way; there is one at a time.", limit="backups", max=1)
            return running
        job = self._latest = BackupJob(path, include_cold)
        self._task = asyncio.create_task(self._run(job), name="backup")
        return job

    def latest(self) -> BackupJob | None:
        """The job under way, or the last one since the broker was started."""
        job = self._latest
        if job is not None and (progress := self._engine.backups.progress) is not None:
            job.done_bytes, job.total_bytes = progress
        return job

    def _allowed(self, directory: str | None) -> str:
        if self._base is None:
            raise InvalidRequest(
                "This broker has no place for backups: start it with TOPICS_BACKUP_DIR, the directory that backups go "
                "to, or below.",
                field="directory",
            )
        base = os.path.realpath(self._base)
        path = os.path.realpath(os.path.join(base, directory or ""))
        if path != base and not path.startswith(base.rstrip("/") + "/"):
            raise InvalidRequest(
                f"directory: this broker writes backups to {base} (TOPICS_BACKUP_DIR) and below, nowhere else.",
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
            job.failure = Failure("internal", "The broker made a mistake; its log has more.")
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
