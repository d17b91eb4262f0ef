"""Backups: one request starts a backup, others ask for its progress."""

from __future__ import annotations

from typing import Any

import msgspec

from broker.api.control import ControlOperations, Current, performance
from broker.api.operation import Owner
from broker.api.refusals import refusals
from broker.auth import ADMIN, Forbidden, Rule
from broker.service import BackupJob
from schemas import BackupAnswer, BackupRequest

operations = ControlOperations("/v0/admin", tag="operations", owner=Owner.ALL)


@operations.post(
    "/backup",
    Rule(ADMIN),
    summary="Start a backup",
    description="The backup contains the state at one instant. The broker serves meanwhile. If a backup to the "
    "same directory is running, the answer describes that one.",
    response_model_exclude_unset=True,
    responses=refusals("invalid_request", "throttled"),
)
async def begin_backup(current: Current, body: BackupRequest) -> BackupAnswer:
    _require_all(current)
    job = current.broker.backups.start(body.directory, include_cold=body.include_cold)
    return _answer(current, job)


@operations.get(
    "/backup", Rule(ADMIN), summary="Describe the running or last backup", response_model_exclude_unset=True
)
async def get_backup(current: Current) -> BackupAnswer:
    _require_all(current)
    return _answer(current, current.broker.backups.latest())


def _require_all(current: Current) -> None:
    """A backup contains all topics and reports on all, so the key has to be for all."""
    if current.access.prefixes:
        raise Forbidden("A backup contains all topics, but this key covers only some of them.")


def _answer(current: Current, job: BackupJob | None) -> BackupAnswer:
    fields: dict[str, Any] = {"state": "none"}
    if job is not None:
        fields = {
            "state": job.state,
            "directory": job.directory,
            "done_bytes": job.done_bytes,
            "total_bytes": job.total_bytes,
        }
        if job.summary is not None:
            fields |= msgspec.structs.asdict(job.summary)
        if job.failure is not None:
            fields["error"] = job.failure._asdict()
    return BackupAnswer.model_validate({**fields, "performance": performance(current)})
