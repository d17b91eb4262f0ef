"""The calls of backups: requests, and parsers of the answers. No I/O."""

from __future__ import annotations

from typing import Any

import msgspec

from topics_client import answers
from topics_client.calls import getting, sending
from topics_client.wire import Call, Replay


class BackupError(msgspec.Struct, frozen=True, kw_only=True):
    """Why a backup failed."""

    code: str
    message: str


class CellInstant(msgspec.Struct, frozen=True, kw_only=True):
    """The instant as of which a cell was backed up, ms since the epoch."""

    cell: int
    taken_ms: int


class Backup(msgspec.Struct, frozen=True, kw_only=True):
    """The backup in progress, or the last one. `state`: none, running, done, failed; sizes are bytes."""

    state: str
    directory: str = ""
    done_bytes: int = 0
    total_bytes: int = 0
    number: int = 0
    taken_ms: int = 0
    seconds: float = 0.0
    topics: int = 0
    segments: int = 0
    copied_bytes: int = 0
    reused_bytes: int = 0
    referenced_segments: int = 0
    referenced_bytes: int = 0
    heads: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    #: Of a set of cells.
    cells: list[CellInstant] = []
    error: BackupError | None = None


def begin_backup(directory: str | None, *, include_cold: bool) -> Call[Backup]:
    fields: dict[str, Any] = {"include_cold": include_cold}
    if directory is not None:
        fields["directory"] = directory
    # Not repeated blindly: the first may be done by then, and a second backup would be made.
    request = sending("POST", "/v0/admin/backup", fields, replay=Replay.IF_UNTOUCHED)
    return Call(request=request, parse=answers.json_value(Backup))


def get_backup() -> Call[Backup]:
    return Call(request=getting("/v0/admin/backup"), parse=answers.json_value(Backup))
