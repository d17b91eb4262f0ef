"""Losses that recovery found and a full disk had no room to announce. Source: storage.md §6."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.format import control
from storage.log.encode import encode_controls
from storage.state.log import Log

if TYPE_CHECKING:
    from storage.engine import Engine


async def settle_debt(engine: Engine, log: Log) -> None:
    """Announce what a full disk had no room for at the start. Raises StorageFull when there is still none."""
    losses = engine.debts.get(log.topic_id)
    if losses is None:
        return  # another write was faster
    frame = encode_controls([control.EvictWatermark(loss=losses)], log.topic_id, engine.now_ms())
    await engine.submit_controls(log, frame, frees=True)
    engine.debts.pop(log.topic_id, None)
