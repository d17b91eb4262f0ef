"""An engine on a simulated disk and the records sent to it: the common part of sessions with consumers and with
routers.

Every record is identified by its data, wherever it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Self, TypeVar

import msgspec

from storage import Durability, Engine, NewRecord, Options, TopicConfig
from storage.errors import InvalidRequest, StorageError, StorageFailed
from storage.segments.errors import SegmentError
from tests.support.crash_ledger import Outcome
from tests.support.crash_session import ROOT
from tests.support.fake_clock import FakeClock
from tests.support.sim_disk import SimDisk


@dataclass(slots=True, eq=False)
class Sent:
    """A record as it was sent. `safe`: nothing may remove it from its topic any more."""

    number: int
    topic: str
    size: int
    tag: str | None = None
    outcome: Outcome = Outcome.OPEN
    safe: bool = False
    deleted: bool = False
    #: Whether it was in memory only when it was sent.
    volatile: bool = False

    @property
    def data(self) -> bytes:
        return b'{"n":%d,"p":"%b"}' % (self.number, b"." * self.size)


@dataclass(slots=True)
class SentLedger:
    """What was requested and answered."""

    sent: list[Sent] = field(default_factory=list[Sent])
    #: Topics whose records may be evicted or deleted.
    capped: set[str] = field(default_factory=set[str])
    gone: set[str] = field(default_factory=set[str])

    def copy(self) -> Self:
        return copy.deepcopy(self)

    def all_safe(self) -> None:
        """What was answered so far can no longer be lost, except for what is in memory only."""
        for sent in self.sent:
            sent.safe = sent.safe or (sent.outcome is Outcome.DONE and not sent.volatile)


L = TypeVar("L", bound=SentLedger)


class SentSession(Generic[L]):
    """One process."""

    #: Turns of the loop within which all background work is done.
    settling_turns: ClassVar[int] = 100

    def __init__(self, disk: SimDisk, options: Options, ledger: L, clock: FakeClock | None) -> None:
        self.disk = disk
        self.options = options
        self.clock = clock or FakeClock()
        self.ledger = ledger
        self.engine = self._made()

    def _made(self) -> Engine:
        return Engine(ROOT, self.options, fs=self.disk, clock=self.clock, threaded=False)

    async def start(self) -> None:
        """Open the directory, or open it again after `close`."""
        if self.engine.closing:
            self.engine = self._made()
        await self.engine.start()

    async def close(self) -> None:
        """A clean stop."""
        await self.settle()
        await self.engine.close()
        if not self.engine.failed_shards:
            self.ledger.all_safe()

    async def settle(self, turns: int | None = None) -> None:
        for _ in range(self.settling_turns if turns is None else turns):
            await asyncio.sleep(0)

    async def pass_time(self, ms: float) -> None:
        """Let the workers run. What was answered before is then hardened, if no shard has stopped."""
        await self.clock.advance(ms)
        if ms >= 3 * self.options.disk_sync_ms and not self.engine.failed_shards:
            self.ledger.all_safe()

    async def together(self, *operations: Awaitable[Any]) -> None:
        await asyncio.gather(*operations)

    async def mark_flushed(self) -> None:
        with contextlib.suppress(OSError, SegmentError):
            await self._ask(self.engine.segment_worker.flush_all())

    async def snapshot(self) -> None:
        with contextlib.suppress(OSError):
            await self._ask(self.engine.snapshotter.take())

    # -- topics --------------------------------------------------------------------------------------------------------

    async def put(self, name: str, config: TopicConfig) -> None:
        if config.cap_records or config.cap_bytes:
            self.ledger.capped.add(name)
        await self._ask(self.engine.put_topic(name, config))

    async def drop(self, name: str) -> Outcome:
        """Delete a topic. Its name is not used again."""
        self.ledger.gone.add(name)
        outcome, _ = await self._ask(self.engine.delete_topic(name))
        return outcome

    def has(self, name: str) -> bool:
        """Whether there is such a topic."""
        return any(state.topic == name for state in self.engine.topics())

    async def append(self, name: str, count: int = 1, *, size: int = 10, tag: str | None = None) -> None:
        """Append new records, if there is such a topic."""
        if not self.has(name):
            return
        durability = self.engine.state(name).config.durability
        first = len(self.ledger.sent)
        batch = [Sent(first + number, name, size, tag) for number in range(count)]
        self.ledger.sent += batch
        self._sending(batch, durability)
        records = [NewRecord(msgspec.Raw(each.data), tag=tag) for each in batch]
        outcome, _ = await self._ask(self.engine.append(name, records))
        for each in batch:
            each.outcome = outcome
            each.safe = outcome is Outcome.DONE and durability is Durability.FSYNC

    def _sending(self, batch: Sequence[Sent], durability: Durability) -> None:
        """Called before these records are appended to a topic of that class."""

    async def _ask(self, operation: Awaitable[Any]) -> tuple[Outcome, Any]:
        try:
            return Outcome.DONE, await operation
        except StorageFailed:
            return Outcome.OPEN, None
        except InvalidRequest as error:
            # A topic in memory only, perhaps because a change failed.
            if error.detail.get("field") != "topic":
                raise
            return Outcome.REFUSED, None
        except StorageError:
            return Outcome.REFUSED, None
