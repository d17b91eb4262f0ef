"""Backups. Source: docs/guides/backup.md."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from schemas.fields import AnswerModel, Flag, RequestModel
from schemas.performance import Performance
from schemas.records import EXAMPLE_PERFORMANCE


class BackupRequest(RequestModel):
    directory: str | None = Field(
        None, description="Where to: TOPICS_BACKUP_DIR or below; relative paths begin there. That itself when left out."
    )
    include_cold: Flag = Field(False, description="Also copy what is in the cold store, instead of referring to it.")

    model_config = ConfigDict(json_schema_extra={"examples": [{"directory": "nightly"}]}, extra="ignore")


class BackupError(AnswerModel):
    code: str
    message: str


class BackupAnswer(AnswerModel):
    """The backup under way, or the last one. What comes of it is there when its state is done or failed."""

    state: Literal["none", "running", "done", "failed"] = Field(description="none: there was none since the start.")
    directory: str | None = None
    done_bytes: int | None = Field(None, description="Read so far.")
    total_bytes: int | None = Field(None, description="To be read, as far as is known.")
    number: int | None = None
    cluster_id: str | None = None
    taken_ms: int | None = Field(None, description="The instant that the backup is of.")
    seconds: float | None = None
    topics: int | None = None
    segments: int | None = None
    copied_bytes: int | None = Field(None, description="Written by this backup.")
    reused_bytes: int | None = Field(None, description="In files of earlier backups, which this one shares.")
    referenced_segments: int | None = Field(None, description="In the cold store alone.")
    referenced_bytes: int | None = None
    heads: dict[str, int] | None = Field(None, description="The head of every topic, as it is in the backup.")
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
