"""Readiness.

Source: docs/reference/api.md#operations.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from storage import NotReady, ShuttingDown, StorageFailed

if TYPE_CHECKING:
    from broker.cells import Cells
    from storage import Engine


def check(engine: Engine, cells: Cells | None = None, *, stopping: bool) -> int:
    """The number of topics, if the broker is ready. A cell is not ready before other cells can call it: requests for
    several cells would fail. Raises ShuttingDown, NotReady, StorageFailed (with the shards)."""
    if stopping:
        raise ShuttingDown
    if not engine.ready or (cells is not None and not cells.accepts_calls):
        raise NotReady(replay_progress=engine.recovery_progress)
    failed = engine.failed_shards
    if failed:
        raise StorageFailed(
            f"{len(failed)} log shards have failed and accept no writes until the broker is restarted.",
            shards=[_shard(shard, number) for shard, number in failed],
        )
    return engine.catalog.size


def _shard(shard: int, number: int | None) -> dict[str, Any]:
    return {"shard": shard, "errno": number, "error": None if number is None else errno.errorcode.get(number)}
