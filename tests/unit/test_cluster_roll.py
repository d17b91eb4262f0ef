"""Which members of a cluster are there, may have ended, or are silent."""

from __future__ import annotations

import pytest

from broker.cluster import Address, Member, Roll
from broker.cluster.roll import FORGET_S
from storage.bucket import Unanswered
from tests.support.memory_bucket import MemoryBucket

HERE = Address("127.0.0.1", 4300)


class SlowBucket(MemoryBucket):
    """Each request takes `takes_s` of the test's clock. `is_away`: no request is answered."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.takes_s = 0.0
        self.is_away = False

    def get(self, key: str) -> bytes | None:
        self.now += self.takes_s
        if self.is_away:
            raise Unanswered("away")
        return super().get(key)


class Watch:
    """Node b looks at node a."""

    def __init__(self) -> None:
        self.bucket = SlowBucket()
        self._a, self._b = (Roll(self.bucket, name, name, lambda: self.bucket.now) for name in "ab")

    async def look(self, *, at: float, shown: bool) -> Roll:
        """`shown`: node a shows a sign of life first."""
        self.bucket.now = at
        if shown:
            await self._a.round(Member(node="a", nonce="a", cluster=HERE), hurried=False)
        await self._b.round(Member(node="b", nonce="b", cluster=HERE), hurried=True)
        return self._b

    async def found(self, *, at: float, shown: bool) -> str:
        roll = await self.look(at=at, shown=shown)
        if "a" in roll.suspects:
            assert "a" in roll.members
            return "suspect"
        return "silent" if "a" in roll.silent else "there"


async def test_a_member_that_misses_two_signs_is_a_suspect_and_silent_after_five_seconds() -> None:
    watch = Watch()
    assert await watch.found(at=0, shown=True) == "there"
    found = [await watch.found(at=at, shown=False) for at in (1, 1.9, 2.1, 4.9, 5.1)]
    assert found == ["there", "there", "suspect", "suspect", "silent"]
    assert await watch.found(at=6, shown=True) == "there"


async def test_a_member_is_late_before_it_is_a_suspect() -> None:
    watch = Watch()
    assert not (await watch.look(at=0, shown=True)).is_anyone_late
    assert not (await watch.look(at=1.3, shown=False)).is_anyone_late
    assert (await watch.look(at=1.5, shown=False)).is_anyone_late
    assert not (await watch.look(at=1.6, shown=True)).is_anyone_late


async def test_who_comes_back_again_and_again_is_suspected_later() -> None:
    watch = Watch()
    await watch.look(at=0, shown=True)
    assert await watch.found(at=2.5, shown=False) == "suspect"
    assert await watch.found(at=3, shown=True) == "there"
    assert await watch.found(at=5.5, shown=False) == "there"
    assert await watch.found(at=7.1, shown=False) == "suspect"
    assert await watch.found(at=8, shown=True) == "there"
    assert await watch.found(at=12.9, shown=False) == "there"
    assert await watch.found(at=13.1, shown=False) == "silent"
    await watch.look(at=20, shown=True)
    steady = 20 + FORGET_S
    await watch.look(at=steady, shown=True)
    assert await watch.found(at=steady + 2.1, shown=False) == "suspect"


async def test_nobody_is_a_suspect_because_the_store_is_slow_or_away() -> None:
    watch = Watch()
    await watch.look(at=0, shown=True)
    watch.bucket.takes_s = 0.5
    assert await watch.found(at=2.1, shown=False) == "there"
    watch.bucket.takes_s, watch.bucket.is_away = 0, True
    with pytest.raises(Unanswered):
        await watch.look(at=4, shown=False)
    watch.bucket.is_away = False
    assert await watch.found(at=10, shown=False) == "there"
