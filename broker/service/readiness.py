"""Whether the broker serves, and why not.

Source: docs/reference/api.md#operations.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from storage import NotReady, ShuttingDown, StorageFailed

if TYPE_CHECKING:
    from storage import Engine


def check(engine: Engine, *, stopping: bool) -> int:
    """The number of topics. Raises ShuttingDown, NotReady, StorageFailed (naming the shards that stopped)."""
    if stopping:
        raise ShuttingDown
    if not engine.ready:
        raise NotReady(replay_progress=engine.recovery_progress)
    failed = engine.failed_shards
    if failed:
        raise StorageFailed(
            f"Log shards that have stopped until the next start: {len(failed)}.",
            shards=[_shard(shard, number) for shard, number in failed],
        )
    return engine.catalog.size


def _shard(shard: int, number: int | None) -> dict[str, Any]:
    return {"shard": shard, "errno": number, "error": None if number is None else errno.errorcode.get(number)}
