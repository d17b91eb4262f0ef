"""One topic as a plain list of records: how the engine must look from outside, written in the simplest way."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from storage import Discard, Durability, TopicConfig
from storage.records.values import LossCause

ANNOUNCED = (LossCause.CAP, LossCause.TTL, LossCause.CRASH)


class Item(NamedTuple):
    """A live record. `size`: bytes of data and meta as sent. `body_size`: bytes of the stored object."""

    seq: int
    ts: int
    data: Any
    tag: str | None
    node: str | None
    size: int
    body_size: int


class Key(NamedTuple):
    """The idempotency key of a write, used or renewed at `ts` (ms)."""

    first_seq: int
    records: int
    ts: int


class Told(NamedTuple):
    """A tombstone, without the parts that differ between readers."""

    gap_from: int
    gap_to: int
    reason: str


class Seen(NamedTuple):
    """A topic as seen from outside."""

    head: int
    live: int
    bytes: int
    earliest: int
    evict_floor: int
    items: list[tuple[int, int, Any, str, str]]
    told: list[Told]


def item(seq: int, ts: int, data: Any, tag: str | None, node: str | None) -> Item:
    size = len(json.dumps(data))
    return Item(seq, ts, data, tag, node, size, size + len('{"data":}'))


@dataclass(slots=True)
class Marks:
    """By cause: the lowest seq not lost to it, and the lost ranges (first, last) above that."""

    floors: dict[str, int] = field(default_factory=dict[str, int])
    ranges: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def copy(self) -> Marks:
        return Marks(dict(self.floors), list(self.ranges))

    @property
    def evict_floor(self) -> int:
        return max([1, *(self.floors.get(cause, 1) for cause in ANNOUNCED)])

    def raise_floor(self, cause: LossCause, floor: int) -> None:
        self.floors[cause] = max(self.floors.get(cause, 1), floor)
        self._settle()

    def lose(self, first: int, last: int) -> None:
        """After everything that was lost before."""
        if self.ranges and self.ranges[-1][1] == first - 1:
            first = self.ranges.pop()[0]
        self.ranges.append((first, last))
        self._settle()

    def _settle(self) -> None:
        """A range that the floor has reached is part of it."""
        while met := [each for each in self.ranges if each[0] <= self.evict_floor]:
            self.ranges = [each for each in self.ranges if each not in met]
            self.floors[LossCause.CRASH] = max([self.floors.get(LossCause.CRASH, 1), *(end + 1 for _, end in met)])


@dataclass(slots=True)
class TopicModel:
    """Times are ms. `durable_head`: while the topic is ephemeral, records above it are in memory only."""

    config: TopicConfig = field(default_factory=TopicConfig)
    items: list[Item] = field(default_factory=list[Item])
    marks: Marks = field(default_factory=Marks)
    #: As far as a frame says so. Evictions from memory alone are forgotten with it.
    durable_marks: Marks = field(default_factory=Marks)
    keys: dict[str, Key] = field(default_factory=dict[str, Key])
    #: Keys whose window was over before a restart. They may be live again.
    unsure: set[str] = field(default_factory=set[str])
    head: int = 0
    durable_head: int = 0

    def copy(self) -> TopicModel:
        marks, durable_marks = self.marks.copy(), self.durable_marks.copy()
        items, keys, unsure = list(self.items), dict(self.keys), set(self.unsure)
        return TopicModel(self.config, items, marks, durable_marks, keys, unsure, self.head, self.durable_head)

    # -- what it looks like ------------------------------------------------------------------------------------------

    @property
    def bytes(self) -> int:
        return sum(each.size for each in self.items)

    @property
    def earliest(self) -> int:
        return self.items[0].seq if self.items else self.head + 1

    @property
    def evict_floor(self) -> int:
        return self.marks.evict_floor

    @property
    def live_floor(self) -> int:
        return max([1, *self.marks.floors.values()])

    @property
    def ephemeral(self) -> bool:
        return self.config.durability is Durability.EPHEMERAL

    @property
    def in_memory_only(self) -> bool:
        return self.ephemeral and self.live_floor > self.durable_head

    def reason(self, seq: int) -> str:
        causes = [str(cause) for cause in ANNOUNCED if self.marks.floors.get(cause, 1) > seq]
        return causes[0] if len(causes) == 1 else "mixed"

    def tombstone(self, from_seq: int) -> Told | None:
        """The tombstones that a reader at `from_seq` gets first."""
        if from_seq + 1 < self.evict_floor:
            return Told(from_seq + 1, self.evict_floor - 1, self.reason(from_seq + 1))
        for first, last in self.marks.ranges:
            if first <= from_seq + 1 <= last:
                return Told(from_seq + 1, last, "crash")
        return None

    def stop_behind(self, seq: int) -> int:
        """Where a read from `seq` ends: before the next loss range, or after the head."""
        return min([a for a, _ in self.marks.ranges if a > seq] + [self.head + 1])

    def why_missing(self, seq: int) -> str | None:
        """The reason that a reader of one record gets. None if the record exists."""
        if any(each.seq == seq for each in self.items):
            return None
        if seq > self.head:
            return "future"
        if seq < self.evict_floor:
            return "expired" if self.reason(seq) == LossCause.TTL else "evicted"
        return "lost" if any(a <= seq <= b for a, b in self.marks.ranges) else "deleted"

    def seen(self) -> Seen:
        """How the topic looks to a reader of all of it."""
        told: list[Told] = []
        cursor = 0
        while cursor < self.head:
            tombstone = self.tombstone(cursor)
            if tombstone is not None:
                told.append(tombstone)
                cursor = tombstone.gap_to
            cursor = max(cursor, self.stop_behind(cursor) - 1)
        items = [(each.seq, each.ts, each.data, each.tag or "", each.node or "") for each in self.items]
        return Seen(self.head, len(items), self.bytes, self.earliest, self.evict_floor, items, told)

    # -- what happens ------------------------------------------------------------------------------------------------

    def refuses(self, sizes: list[int]) -> str:
        """The error code for a write of such records, '' if it is accepted."""
        cap_records, cap_bytes = self.config.cap_records, self.config.cap_bytes
        reject = self.config.discard is Discard.REJECT
        if cap_bytes and (sum(sizes) if reject else max(sizes)) > cap_bytes:
            return "record_too_large"
        if reject and cap_records and len(sizes) > cap_records:
            return "record_too_large"
        if reject and cap_records and len(self.items) + len(sizes) > cap_records:
            return "topic_full"
        if reject and cap_bytes and self.bytes + sum(sizes) > cap_bytes:
            return "topic_full"
        return ""

    def append(self, items: list[Item], key: str | None = None) -> None:
        self.items += items
        self.head = items[-1].seq
        if key is not None:
            self.keys[key] = Key(items[0].seq, len(items), items[0].ts)
        self._enforce_caps(written=not self.in_memory_only)

    def delete(self, wanted: Callable[[Item], bool]) -> int:
        """Delete records of that kind. Returns how many there were."""
        before = len(self.items)
        self.items = [each for each in self.items if not wanted(each)]
        return before - len(self.items)

    def _enforce_caps(self, *, written: bool) -> None:
        count, size, floor = len(self.items), self.bytes, 0
        for each in self.items:
            over_records = self.config.cap_records and count > self.config.cap_records
            over_bytes = self.config.cap_bytes and size > self.config.cap_bytes
            if not (over_records or over_bytes):
                break
            count, size, floor = count - 1, size - each.size, each.seq + 1
        self.raise_floor(LossCause.CAP, floor, written=written)

    def ttl_floor_fits(self, now_ms: int, floor: int) -> bool:
        """Whether the engine may have this ttl floor by now."""
        old = self._expired(now_ms)
        if not old:
            return floor == self.marks.floors.get(LossCause.TTL, 1)
        young = [each.seq for each in self.items if each.seq > old[-1]]
        return old[-1] < floor <= min([self.head + 1, *young[:1]])

    def expire(self, now_ms: int, floor: int) -> bool:
        """Remove what is too old, and say whether anything was removed. `floor`: that of the engine, which may skip
        what is not live."""
        if not self._expired(now_ms):
            return False
        self.raise_floor(LossCause.TTL, floor, written=not self.in_memory_only)
        return True

    def _expired(self, now_ms: int) -> list[int]:
        ttl_ms = self.config.ttl_ms
        return [each.seq for each in self.items if ttl_ms and now_ms - each.ts > ttl_ms]

    def raise_floor(self, cause: LossCause, floor: int, *, written: bool) -> None:
        """Everything below is gone. `written`: a frame says so."""
        self.marks.raise_floor(cause, floor)
        if written:
            self.durable_marks.raise_floor(cause, floor)
        self.items = [each for each in self.items if each.seq >= self.live_floor]

    def set_config(self, config: TopicConfig) -> None:
        if self.config.durability is not config.durability:
            self.durable_head = self.head
            self.durable_marks = self.marks.copy()
        self.config = config
        self._enforce_caps(written=True)

    # -- restarts ----------------------------------------------------------------------------------------------------

    def restart(self, new_head: int, now_ms: int, window_ms: int, found: dict[str, int]) -> None:
        """Another process continues with this topic and finds this head. What is missing, it announces as lost.

        `found`: its floors. A snapshot may have kept some that no frame mentions.
        """
        kept = self.durable_head if self.ephemeral else self.head
        if self.ephemeral:
            for cause in (LossCause.CAP, LossCause.TTL):
                self.durable_marks.raise_floor(cause, min(found.get(cause, 1), self.marks.floors.get(cause, 1)))
            self.marks = self.durable_marks
        if new_head > kept:
            self.marks.lose(kept + 1, new_head)
        self.items = [each for each in self.items if self.live_floor <= each.seq <= kept]
        self.durable_marks = self.marks.copy()
        self.head = self.durable_head = new_head
        # Keys that were live get a whole window from now on.
        there = {name: key for name, key in self.keys.items() if key.first_seq <= kept}
        self.unsure |= {name for name, key in there.items() if now_ms - key.ts > window_ms}
        self.keys = {name: key._replace(ts=now_ms) for name, key in there.items() if name not in self.unsure}
