"""Everything at once, from several tasks and on real writer threads. Somewhere it stops, or a call fails."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from random import Random

import msgspec

from storage import Durability, TopicConfig
from storage.errors import StorageError
from tests.support.crash_session import Session

TAGS = ("red", "blue", None)
CLASSES = list(Durability)


class Chaos:
    """Tasks that each own some topics, and all write to the shared ones. The same seed gives the same plan."""

    def __init__(self, session: Session, seed: int) -> None:
        self.session = session
        self._seed = seed

    async def run(self, steps: int) -> None:
        """Run until every task has taken this many steps, or the shard that it needs has stopped."""
        for each in CLASSES:
            await self.session.put(f"shared-{each}", self._config(Random(self._seed), each))
        tasks = [self._owner(number, steps) for number in range(4)] + [
            self._writer(number, steps) for number in range(8)
        ]
        await asyncio.gather(self._snapshots(steps), *tasks)

    @staticmethod
    def _config(rng: Random, durability: Durability) -> TopicConfig:
        config = TopicConfig(durability=durability)
        if rng.random() < 0.3:
            config = msgspec.structs.replace(config, cap_records=rng.randint(3, 30))
        return config

    async def _writer(self, number: int, steps: int) -> None:
        rng = Random(self._seed * 100 + number)
        for step in range(steps):
            name = f"shared-{rng.choice(CLASSES)}"
            key = f"k{number}-{step}" if rng.random() < 0.3 else None
            size = rng.choice([10, 60, 400, 1500])
            await self.session.append(name, rng.randint(1, 5), size=size, tag=rng.choice(TAGS), key=key)
            if rng.random() < 0.1:
                await self.session.remove(name, tag="red", before_seq=rng.randint(1, 60))

    async def _owner(self, number: int, steps: int) -> None:
        rng = Random(self._seed * 1000 + number)
        names = [f"own-{number}-{index}" for index in range(2)]
        for _ in range(steps):
            name = rng.choice(names)
            action = rng.random()
            if action < 0.6:
                await self.session.append(name, rng.randint(1, 3), size=rng.choice([10, 300]), tag=rng.choice(TAGS))
            elif action < 0.8:
                await self.session.put(name, self._config(rng, rng.choice(CLASSES)))
            elif action < 0.9:
                await self.session.drop(name)
            else:
                await self.session.remove(name, tag=rng.choice(["red", "blue"]))

    async def _snapshots(self, steps: int) -> None:
        for _ in range(steps // 3):
            await asyncio.sleep(0.002)
            with contextlib.suppress(StorageError):
                await self.session.snapshot()


def trouble(session: Session, rng: Random) -> str:
    """Arrange for something to go wrong. Returns what."""
    disk, nth = session.disk, rng.randint(5, 400)
    kind = rng.choice(["stop", "stop", "error", "full", "none"])
    if kind == "stop":
        disk.crash_at(len(disk.calls) + nth, rng.choice(["before", "half", "after"]))
    elif kind == "error":
        op = rng.choice(["datasync", "pwritev", "sync", "sync_dir", "rename", "open", "allocate", "*"])
        disk.fail(op, errno=rng.choice([errno.EIO, errno.ENOSPC]), nth=rng.randint(1, 40), torn=rng.random() < 0.5)
    elif kind == "full":
        disk.capacity_bytes = disk.used_bytes + rng.randint(0, 60_000)
    return kind
