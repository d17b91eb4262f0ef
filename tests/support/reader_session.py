"""A session for workloads with consumers, and a ledger of what the consumers got."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from storage import Options, ReadQuery, StoredRecord
from storage.state.consumers.values import Consistency, ConsumerConfig, Start
from tests.support.crash_ledger import Outcome
from tests.support.fake_clock import FakeClock
from tests.support.sent_session import SentLedger, SentSession
from tests.support.sim_disk import SimDisk


def number_of(record: StoredRecord) -> int:
    """Which record it is."""
    return int(record.body[len(b'{"data":{"n":') :].partition(b",")[0])


@dataclass(slots=True, eq=False)
class Life:
    """A consumer from one put to its deletion, as far as its clients know.

    A crash may take the cursor back to anything from `floor_seq` to `cursor_seq`, or to one of `maybe`: seqs that were
    requested without an answer. `ahead`: how many more records a strict read without an answer may have taken.
    """

    topic: str
    name: str
    #: The most records that may come again, and whether none may, under any config that it may have.
    persist_every: int
    strict: bool
    made: Outcome = Outcome.OPEN
    deleted: Outcome | None = None
    floor_seq: int = 0
    cursor_seq: int = 0
    maybe: list[int] = field(default_factory=list[int])
    ahead: int = 0
    #: (seq, number) returned since the last seek or restart.
    handed: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    #: Numbers returned since the last seek, over restarts.
    seen: set[int] = field(default_factory=set[int])

    def place(self, seq: int) -> None:
        """The log has this for certain, whatever was before."""
        self.floor_seq = self.cursor_seq = seq
        self.maybe, self.ahead, self.handed, self.seen = [], 0, [], set()


@dataclass(slots=True)
class ReaderLedger(SentLedger):
    """What was requested and answered."""

    lives: list[Life] = field(default_factory=list[Life])
    #: Whether the last stop was clean with everything written, so that cursors are where they were.
    exact: bool = False

    def life(self, topic: str, name: str) -> Life | None:
        """The consumer that exists, or may exist."""
        found = [each for each in self.lives if (each.topic, each.name) == (topic, name)]
        return found[-1] if found and found[-1].deleted is not Outcome.DONE else None


class ReaderSession(SentSession[ReaderLedger]):
    """One process."""

    def __init__(
        self, disk: SimDisk, options: Options, *, clock: FakeClock | None = None, ledger: ReaderLedger | None = None
    ) -> None:
        super().__init__(disk, options, ledger or ReaderLedger(), clock)

    async def restart(self, *, shards: int = 0) -> None:
        """A clean stop, and a start, perhaps with another number of shards."""
        await self.settle()
        engine = self.engine
        before = engine.snapshotter.taken
        await engine.close()
        if not engine.failed_shards and engine.snapshotter.taken > before:
            self.ledger.all_safe()
            for life in self.ledger.lives:
                life.floor_seq = life.cursor_seq if not life.ahead else life.floor_seq
        if shards:
            self.options = msgspec.structs.replace(self.options, wal_shards=shards)
        await self.start()
        for life in self.ledger.lives:
            if life.made is Outcome.DONE and life.deleted is None and life.topic not in self.ledger.gone:
                life.cursor_seq = self.engine.consumers.state(life.topic, life.name).cursor_seq
                assert life.cursor_seq >= life.floor_seq, f"a clean stop forgot where {life.name} stood"
                self._taken_back(life)

    @staticmethod
    def _taken_back(life: Life) -> None:
        """A stop that was not clean left the cursor here. Records after it come again."""
        again = [seq for seq, _ in life.handed if seq > life.cursor_seq]
        assert not (again and life.strict), f"{life.name} gives {again} again"
        assert len(again) <= life.persist_every, f"{life.name} gives {again} again, more than {life.persist_every}"
        life.handed = [(seq, number) for seq, number in life.handed if seq <= life.cursor_seq]

    async def pass_time(self, ms: float) -> None:
        """For a second or more: afterwards the log knows the cursors of silent readers, if it takes anything."""
        await super().pass_time(ms)
        if self.engine.failed_shards or any(shard.log.full for shard in self.engine.shards):
            return
        if ms >= max(1500, 3 * self.options.disk_sync_ms):
            for life in self.ledger.lives:
                life.floor_seq = max(life.floor_seq, life.cursor_seq)

    async def remove(self, name: str, before_seq: int) -> None:
        """Delete everything below a seq."""
        self.ledger.capped.add(name)
        await self._ask(self.engine.delete_records(name, before_seq, None))

    # -- consumers -----------------------------------------------------------------------------------------------------

    async def consumer(
        self, topic: str, name: str, *, strict: bool = False, every: int = 4, start: Start = "earliest"
    ) -> None:
        """Make a consumer, or set it anew. This is refused if the topic is, or has become, one in memory only.

        Nothing is requested if the consumer was to begin after a record that was refused.
        """
        if isinstance(start, int) and start > self._head(topic):
            return
        consistency = Consistency.STRICTLY_AT_ONCE if strict else Consistency.AT_LEAST_ONCE
        life = self.ledger.life(topic, name)
        if life is None:
            head = self._head(topic)
            seq = head if start == "head" else 0 if start == "earliest" else start
            life = Life(topic, name, every, strict, floor_seq=seq, cursor_seq=seq)
            self.ledger.lives.append(life)
        else:
            life.persist_every, life.strict = max(life.persist_every, every), life.strict and strict
        config = ConsumerConfig(consistency=consistency, persist_every=every)
        outcome, answer = await self._ask(self.engine.consumers.put(topic, name, config, start))
        if life.made is not Outcome.DONE:
            life.made = outcome
            if answer is not None:
                life.floor_seq = life.cursor_seq = answer[0].cursor_seq

    async def unmake(self, topic: str, name: str) -> None:
        """Delete a consumer."""
        life = self.ledger.life(topic, name)
        if life is not None:
            life.deleted = Outcome.OPEN
            outcome, _ = await self._ask(self.engine.consumers.delete(topic, name))
            life.deleted = None if outcome is Outcome.REFUSED else outcome

    async def read(self, topic: str, name: str, limit: int = 3, *, times: int = 1) -> None:
        """Read this often, one read after another. After a failure nothing more is returned."""
        life = self.ledger.life(topic, name)
        for _ in range(times):
            if life is None:
                return
            before = life.ahead
            life.ahead = max(before, limit) if life.strict else before
            outcome, answer = await self._ask(self.engine.consumers.read(topic, name, ReadQuery(limit=limit)))
            if outcome is not Outcome.OPEN:
                life.ahead = before
            if answer is None:
                return
            self.take(life, answer.result.records, answer.cursor_seq)

    @staticmethod
    def take(life: Life, records: list[StoredRecord], cursor_seq: int) -> None:
        """The records were returned, and have reached their reader."""
        for record in records:
            assert not life.handed or record.seq > life.handed[-1][0], f"{life.name} was handed {record.seq} again"
            life.handed.append((record.seq, number_of(record)))
            life.seen.add(number_of(record))
        life.cursor_seq = cursor_seq
        if life.strict:
            life.floor_seq = max(life.floor_seq, records[-1].seq if records else 0)

    async def peek(self, topic: str, name: str) -> None:
        await self._ask(self.engine.consumers.read(topic, name, checkpoint=False))

    async def commit(self, topic: str, name: str, seq: int) -> None:
        life = self.ledger.life(topic, name)
        if life is None or seq > self._head(topic):
            return
        life.maybe.append(seq)
        outcome, _ = await self._ask(self.engine.consumers.commit(topic, name, seq))
        if outcome is not Outcome.OPEN:
            life.maybe.remove(seq)
        if outcome is Outcome.DONE:
            life.floor_seq = max(life.floor_seq, seq)
            life.cursor_seq = max(life.cursor_seq, seq)

    async def seek(self, topic: str, name: str, to: int | Literal["earliest", "head"]) -> None:
        life = self.ledger.life(topic, name)
        if life is None or (isinstance(to, int) and to > self._head(topic)):
            return
        seq = to if isinstance(to, int) else self._head(topic) if to == "head" else 0
        life.maybe.append(seq)
        where: dict[str, Any] = {"seq": to} if isinstance(to, int) else {"to": to}
        outcome, answer = await self._ask(self.engine.consumers.seek(topic, name, **where))
        if outcome is Outcome.REFUSED:
            life.maybe.remove(seq)
        if answer is not None:
            life.place(answer.cursor_seq)

    def _head(self, topic: str) -> int:
        return next((state.head_seq for state in self.engine.topics() if state.topic == topic), 0)
