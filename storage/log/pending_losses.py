"""Losses that recovery found and a full disk had no room to announce.

Source: docs/reference/guarantees.md#recovery.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.state.log import Log

if TYPE_CHECKING:
    from storage.engine import Engine


async def announce_losses(engine: Engine, log: Log) -> None:
    """Announce what a full disk had no room for at the start. Raises StorageFull when there is still none."""
    await engine.logs.announce_losses(log)
