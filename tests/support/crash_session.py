"""An engine on a simulated disk whose every answer goes into a ledger. Workloads are written with it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec

from storage import Appended, Durability, Engine, NewRecord, Options, ReadQuery, TopicConfig
from storage.bucket import IN_BUCKET
from storage.errors import StorageError, StorageFailed
from storage.records.partitions import address, split
from storage.records.values import TagMatch
from storage.segments.errors import SegmentError
from storage.state.consumers.values import Consistency, ConsumerConfig
from tests.support.crash_ledger import Ledger, Life, Outcome, Reading, Removal, Setting, Write
from tests.support.fake_clock import FakeClock
from tests.support.sim_disk import SimDisk

ROOT = "/data/topics"
#: More than any workload makes.
MAX_PARTITIONS = 8


class Session:
    """One process: an engine, and the ledger of its answers. Operations return None if they were refused."""

    def __init__(
        self,
        disk: SimDisk,
        options: Options,
        *,
        clock: FakeClock | None = None,
        ledger: Ledger | None = None,
        make: Callable[[], Engine] | None = None,
    ) -> None:
        self.disk = disk
        self.options = options
        self.clock = clock or FakeClock()
        self.ledger = ledger or Ledger()
        self._make = make or self._simulated
        self.engine = self._make()
        self.refusals: list[StorageError] = []
        #: Writes of one record that were accepted without a task of their own.
        self.gathered = 0

    def _simulated(self) -> Engine:
        options, tier = self.options, None
        if self.disk.make_tier is not None:
            tier = self.disk.make_tier(options.cold_dir == IN_BUCKET)
            options = msgspec.structs.replace(options, cold_dir="")
        return Engine(ROOT, options, fs=self.disk, clock=self.clock, threaded=False, tier=tier)

    async def start(self) -> None:
        """Open the directory, or open it again after `close`."""
        if self.engine.closing:
            self.engine = self._make()
        await self.engine.start()
        for name in {life.name for life in self.ledger.lives if life.adrift}:
            if self.ledger.live(name) is None and self._has(name):
                self._found_again(name)

    def _found_again(self, name: str) -> None:
        """One of several creations with an open outcome was in the log: the first that fits, as in `crash_check`."""
        state = self.engine.state(name)
        adrift = [life for life in self.ledger.lives if life.name == name and life.adrift]
        fitting = [life for life in adrift if state.config in life.configs_allowed()]
        life = (fitting or adrift)[0]
        life.adrift, life.topic_id, life.epoch = False, state.topic_id, state.epoch
        self.ledger.lives.remove(life)
        self.ledger.lives.append(life)

    async def close(self) -> None:
        """A clean stop: nothing acked can be lost any more, except for what was in memory only."""
        await self.engine.close()
        if not self.engine.failed_shards:
            for life in self.ledger.lives:
                life.all_safe()

    async def pass_time(self, ms: float) -> None:
        """Let the workers run. What was acked before is then hardened, if no shard has stopped."""
        await self.clock.advance(ms)
        if ms >= 3 * self.options.disk_sync_ms and not self.engine.failed_shards:
            for life in self.ledger.lives:
                life.all_safe()

    # -- topics ------------------------------------------------------------------------------------------------------

    async def put(self, name: str, config: TopicConfig | None = None) -> bool:
        """Create the topic or change its config. Returns whether that was acked."""
        config = config or TopicConfig()
        told: list[tuple[Life, Setting, bool]] = []
        for each in self._addresses(name, config.partitions):
            life = self.ledger.live(each)
            changed = life is None or config not in life.configs_allowed()
            if life is None:
                life = self.ledger.begin(each, config)
                setting = life.settings[0]
            else:
                setting = Setting(config)
                life.settings.append(setting)
            told.append((life, setting, changed))
        before = self.engine.state(name).config if self._has(name) else None
        outcome, _ = await self._ask(self.engine.put_topic(name, config))
        # Partition 0 may be set this way, and the others follow when there is room, or at the next start.
        decided = outcome is not Outcome.DONE and before != config and self._has(name)
        decided = decided and self.engine.state(name).config == config
        for life, setting, changed in told:
            follows = decided and self.engine.state(life.name).config != config
            self._made(life, Outcome.DONE if decided and not follows else outcome, setting)
            if follows:
                setting.outcome = Outcome.OPEN
            if outcome is Outcome.DONE and changed:
                life.all_safe()  # the frame that says so is synced after everything that this log has written
        return outcome is Outcome.DONE

    def _addresses(self, name: str, partitions: int) -> list[str]:
        """Give the topic at least this many partitions."""
        addresses = [address(name, p) for p in range(MAX_PARTITIONS)]
        return [
            each for p, each in enumerate(addresses) if p < partitions or (p and self.ledger.live(each) is not None)
        ]

    def _made(self, life: Life, outcome: Outcome, setting: Setting | None) -> None:
        if setting is not None:
            setting.outcome = outcome
        if life.made is not Outcome.DONE:
            life.made = outcome
            life.adrift = outcome is Outcome.OPEN
        if outcome is Outcome.DONE:
            state = self.engine.state(life.name)
            life.topic_id, life.epoch = state.topic_id, state.epoch

    async def drop(self, name: str) -> None:
        """Delete the topic, if it was created."""
        if self._there(name) is None:
            return
        lives = [life for each in self._addresses(name, 1) if (life := self.ledger.live(each)) is not None]
        for life in lives:
            life.deleted = Outcome.OPEN
        outcome, _ = await self._ask(self.engine.delete_topic(name))
        for life in lives:
            life.deleted = outcome if outcome is not Outcome.REFUSED else None

    def _there(self, name: str) -> Life | None:
        """The topic, unless an earlier step of the workload failed."""
        return self.ledger.live(name) if self._has(name) else None

    def _has(self, name: str) -> bool:
        title, p = split(name)
        return any(state.topic == title for state in self.engine.topics()) and p < self.engine.partitions(title)

    # -- records -----------------------------------------------------------------------------------------------------

    async def append(
        self,
        name: str,
        count: int = 1,
        *,
        size: int = 40,
        tag: str | None = None,
        key: str | None = None,
        meta: bool = False,
        config: TopicConfig | None = None,
        soon: bool = False,
    ) -> Appended | None:
        """Append new records. The topic is created if it is missing.

        `soon`: one record, together with all others of this turn of the loop, if that is possible.
        """
        life = self.ledger.live(name)
        number, records = self.ledger.records(count, size=size, tag=tag, meta=meta)
        making = life is None
        if life is None:
            life = self.ledger.begin(name, config or TopicConfig())
        here = split(name)[1] and self._has(name)  # a partition that has yet to follow partition 0 has its former class
        durability = self.engine.state(name).config.durability if here else life.durability
        write = Write(number, durability, records, key)
        life.writes.append(write)
        new = [record.new() for record in records]
        operation = self.engine.append(name, new, idempotency_key=key, config=config)
        outcome, answer = await self._ask(self._soon(name, new, operation) if soon else operation)
        if making:
            self._made(life, outcome, life.settings[0])
        write.outcome = outcome
        if outcome is Outcome.DONE:
            write.ack(answer.first_seq)
            write.safe = write.durability is Durability.FSYNC
        return answer

    async def _soon(self, name: str, new: list[NewRecord], other: Coroutine[Any, Any, Appended]) -> Appended:
        told: asyncio.Future[Appended | Exception | None] = asyncio.get_running_loop().create_future()
        try:
            soon = self.engine.try_append_coalesced(name, new[0].data, told.set_result, lambda: told.set_result(None))
            outcome = await told if soon else None
        except BaseException:
            other.close()
            raise
        if outcome is None:
            return await other
        other.close()
        if isinstance(outcome, Exception):
            raise outcome
        self.gathered += 1
        return outcome

    async def together(self, *operations: Awaitable[Any]) -> None:
        """Run several at once, begun in the order given."""
        await asyncio.gather(*operations)

    async def remove(self, name: str, *, before_seq: int | None = None, tag: str | None = None) -> None:
        """Delete records, if there is such a topic."""
        life = self._there(name)
        if life is None:
            return
        removal = Removal(life.durability, self.engine.state(name).head_seq, before_seq, tag)
        life.removals.append(removal)
        match = None if tag is None else TagMatch(tag.encode())
        removal.outcome, _ = await self._ask(self.engine.delete_records(name, before_seq, match))
        removal.safe = removal.outcome is Outcome.DONE and removal.durability is Durability.FSYNC

    # -- consumers ---------------------------------------------------------------------------------------------------

    async def consume(self, name: str, consumer: str, *, strictly: bool = False, persist_every: int = 2) -> None:
        """Make a consumer that begins with the first record, or change it."""
        life = self._there(name)
        if life is None:
            return
        reading = life.reading(consumer)
        if reading is None:
            reading = Reading(consumer, life.consumed_to)
            life.readings.append(reading)
        kind = Consistency.STRICTLY_AT_ONCE if strictly else Consistency.AT_LEAST_ONCE
        config = ConsumerConfig(consistency=kind, persist_every=persist_every)
        outcome, answer = await self._ask(self.engine.consumers.put(name, consumer, config))
        reading.made = outcome if reading.made is not Outcome.DONE else reading.made
        if answer is not None:
            self._stands(life, reading, answer[0].cursor_seq)

    async def take(self, name: str, consumer: str, limit: int = 3) -> None:
        """Read on."""
        await self._move(name, consumer, self.engine.consumers.read(name, consumer, ReadQuery(limit=limit)))

    async def commit(self, name: str, consumer: str, seq: int) -> None:
        """Confirm everything up to `seq`."""
        await self._move(name, consumer, self.engine.consumers.commit(name, consumer, seq))

    async def seek(self, name: str, consumer: str, seq: int) -> None:
        """Continue after `seq`."""
        life = self._there(name)
        if life is not None and (reading := life.reading(consumer)) is not None:
            reading.sought = True
        await self._move(name, consumer, self.engine.consumers.seek(name, consumer, seq=seq))

    async def _move(self, name: str, consumer: str, work: Coroutine[Any, Any, Any]) -> None:
        life = self._there(name)
        reading = life.reading(consumer) if life is not None else None
        if life is None or reading is None:
            work.close()
            return
        reading.upto_seq = max(reading.upto_seq, self.engine.state(name).head_seq)  # the state after the crash decides
        _, answer = await self._ask(work)
        if answer is not None:
            self._stands(life, reading, answer.cursor_seq)

    def _stands(self, life: Life, reading: Reading, cursor_seq: int) -> None:
        reading.upto_seq = cursor_seq
        life.note_consumed()

    async def leave(self, name: str, consumer: str) -> None:
        """Delete a consumer."""
        life = self._there(name)
        reading = life.reading(consumer) if life is not None else None
        if life is None or reading is None:
            return
        life.note_consumed()
        reading.deleted = Outcome.OPEN
        outcome, _ = await self._ask(self.engine.consumers.delete(name, consumer))
        reading.deleted = outcome
        life.note_consumed()

    # -- what workers do ---------------------------------------------------------------------------------------------

    async def mark_flushed(self) -> None:
        """What the flusher does when it is due: records go into segments, and segments are maintained."""
        with contextlib.suppress(OSError):
            await self._ask(self.engine.segment_worker.flush_all())

    async def relocate(self) -> None:
        """What the worker of the cold tier does when it is due. Its errors break no promise."""
        with contextlib.suppress(OSError, SegmentError):
            await self._ask(self.engine.relocator.tick())

    async def snapshot(self) -> None:
        """What the worker does when it is due. Its errors, of any kind, break no promise."""
        with contextlib.suppress(OSError):
            await self._ask(self.engine.snapshotter.take())
        if self.disk.make_base is not None:
            with contextlib.suppress(OSError):
                await self._ask(self.disk.make_base(self.engine))

    async def _ask(self, operation: Awaitable[Any]) -> tuple[Outcome, Any]:
        try:
            return Outcome.DONE, await operation
        except StorageFailed as error:
            self.refusals.append(error)
            return Outcome.OPEN, None
        except StorageError as error:
            self.refusals.append(error)
            return Outcome.REFUSED, None


Body = Callable[[Session], Awaitable[None]]
