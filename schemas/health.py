"""Health and readiness.

Source: docs/reference/api.md#operations.
"""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict

from schemas.fields import AnswerModel


class HealthAnswer(AnswerModel):
    status: Literal["ok"]
    version: str
    uptime_ms: int
    cluster_id: str | None
    kernel: Literal["compiled", "python"]
    """The kernel in use: compiled code, or Python if that was not built."""
    set_id: str | None = None
    """The id of the set of cells. Absent if the broker is alone."""
    cell: int | None = None
    """The number of the cell that answers. Absent at the gateway."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "status": "ok",
                    "version": "0.1.0",
                    "uptime_ms": 60_000,
                    "cluster_id": "9f0c2a64d1e84c0f8a5b1c7d3e2f4a6b",
                    "kernel": "compiled",
                }
            ]
        },
        extra="forbid",
    )


class ReadyAnswer(AnswerModel):
    status: Literal["ready"]
    wal_replay_complete: bool
    topics: int

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"status": "ready", "wal_replay_complete": True, "topics": 3}]},
        extra="forbid",
    )
