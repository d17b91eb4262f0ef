"""Before a cell is given away, everything is flushed into segments. Each round of it flushed what was appended during
the one before, so against a writer that was as fast as a round it had no end."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from storage import Engine
from storage.segments.flusher import Flusher
from storage.state import Log
from tests.support.sim_disk import SimDisk
from tests.unit.storage.machine import DATA, options, records

ROUNDS = 50


async def test_a_flush_ends_although_each_round_finds_new_records(monkeypatch: pytest.MonkeyPatch) -> None:
    flush, rounds = Flusher._flush, 0  # pyright: ignore[reportPrivateUsage]

    async with Engine.open(DATA, options(), fs=SimDisk()) as engine:

        async def then_append(self: Flusher, logs: Sequence[Log]) -> None:
            nonlocal rounds
            rounds += 1
            await flush(self, logs)
            if rounds < ROUNDS:
                await engine.append("t", records(1))

        monkeypatch.setattr(Flusher, "_flush", then_append)
        await engine.append("t", records(3))
        await engine.segment_worker.flush_all()
        assert rounds < 5
        assert engine.catalog.topics["t"].log.held.flushed >= 3
