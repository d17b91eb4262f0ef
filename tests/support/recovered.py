"""Recovers a directory on the real disk and returns everything that resulted, so that two ways to recover can be
compared."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from structlog.testing import capture_logs

from storage import Options
from storage.platform.directory import ShardTrust
from storage.platform.posix import PosixFileSystem
from storage.recovery.recovery import recover


def outcome(root: Path, options: Options, *, shards: int, trusted: bool = True) -> tuple[Any, ...]:
    """The result of recovery or the error it raises, what it logs, and the bytes it leaves. Changes the directory."""
    fractions: list[float] = []
    with capture_logs() as logs:
        try:
            found = recover(
                PosixFileSystem(),
                str(root),
                options,
                shards,
                trust=ShardTrust(shards, () if trusted else None),
                now_ms=lambda last_ts: last_ts + 1000,
                progress=fractions.append,
            )
            said = ("recovered", picture(found), fractions[-1])
        except Exception as error:
            said = ("refused", type(error), str(error), vars(error))
    return said, logs, {path.name: path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def picture(value: Any) -> Any:
    """Everything that an object holds, as values that can be compared."""
    if isinstance(value, (array, bytearray)):
        return value.tolist() if isinstance(value, array) else bytes(value)
    if isinstance(value, dict):
        return {key: picture(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [picture(each) for each in value]
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    if value is None or isinstance(value, (str, bytes, int, float)):
        return value
    if isinstance(value, Callable):
        return None
    names = getattr(type(value), "__slots__", None) or vars(value)
    return {name: picture(getattr(value, name)) for name in names}
