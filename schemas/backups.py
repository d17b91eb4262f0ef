"""Backups. Source: docs/guides/backup.md."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from schemas.fields import AnswerModel, Flag, RequestModel
from schemas.performance import Performance
from schemas.records import EXAMPLE_PERFORMANCE


class BackupRequest(RequestModel):
    directory: str | None = Field(
        None,
        description="Directory of the backup: TOPICS_BACKUP_DIR (the default) or below. Relative paths begin there.",
    )
    include_cold: Flag = Field(False, description="Also copy segments in the cold tier, instead of referring to them.")

    model_config = ConfigDict(json_schema_extra={"examples": [{"directory": "nightly"}]}, extra="ignore")


class BackupError(AnswerModel):
    code: str
    message: str


class CellInstant(AnswerModel):
    cell: int
    taken_ms: int


class BackupAnswer(AnswerModel):
    """The running backup, or the last one. The result is set when the state is done or failed."""

    state: Literal["none", "running", "done", "failed"] = Field(
        description="none: no backup since the broker was started."
    )
    directory: str | None = None
    done_bytes: int | None = Field(None, description="Read so far.")
    total_bytes: int | None = Field(None, description="Bytes to read, as far as is known.")
    number: int | None = None
    cluster_id: str | None = None
    taken_ms: int | None = Field(
        None, description="The time whose state the backup contains; of a set of cells, the earliest one."
    )
    cells: list[CellInstant] | None = Field(
        None, description="The time of each cell, since each is backed up as of its own. Absent without cells."
    )
    seconds: float | None = None
    topics: int | None = None
    segments: int | None = None
    copied_bytes: int | None = Field(None, description="Bytes written by this backup.")
    reused_bytes: int | None = Field(None, description="Bytes in files that this backup shares with earlier ones.")
    referenced_segments: int | None = Field(None, description="Segments that are only in the cold tier.")
    referenced_bytes: int | None = None
    heads: dict[str, int] | None = Field(None, description="The head of each topic in the backup.")
    error: BackupError | None = None
    performance: Performance

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "state": "running",
                    "directory": "/backups/nightly",
                    "done_bytes": 1_048_576,
                    "total_bytes": 8_388_608,
                    "performance": EXAMPLE_PERFORMANCE,
                }
            ]
        },
        extra="forbid",
    )
