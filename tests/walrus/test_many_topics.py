"""Thousands of topics in one engine: each keeps its own records in order, also over a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path

from storage import Engine


async def test_5000_topics_at_once(data_dir: Path, soak_mode: bool) -> None:
    topics, rounds = (20_000, 5) if soak_mode else (5000, 2)
    names = [f"topic-{number:05d}" for number in range(topics)]
    async with Engine.open(data_dir) as engine:
        for turn in range(rounds):
            done = await asyncio.gather(
                *(engine.append_batch(name, [f"{name}/{turn}", bytes([turn])]) for name in names)
            )
            assert {each.created for each in done} == {turn == 0}
    async with Engine.open(data_dir) as engine:
        assert len(engine.topics(limit=topics + 1)) == topics
        batches = await asyncio.gather(*(engine.read_batch(name, "c") for name in names))
        for name, batch in zip(names, batches, strict=True):
            expected = [value for turn in range(rounds) for value in (f"{name}/{turn}", bytes([turn]))]
            assert [record.value for record in batch] == expected
        assert not any(engine.unread(name, "c") for name in names)
