"""One topic as a plain list of records: what the engine must look like from outside, with nothing clever in it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from storage import Discard, Durability, TopicConfig
from storage.records import LossCause

ANNOUNCED = (LossCause.CAP, LossCause.TTL, LossCause.CRASH)


class Item(NamedTuple):
    """A live record. `size` is of data and meta as sent, `body_size` of the stored object."""

    seq: int
    ts: int
    data: Any
    tag: str | None
    node: str | None
    size: int
    body_size: int


def item(seq: int, ts: int, data: Any, tag: str | None, node: str | None) -> Item:
    size = len(json.dumps(data))
    return Item(seq, ts, data, tag, node, size, size + len('{"data":}'))


@dataclass(slots=True)
class TopicModel:
    """Times are ms. `durable_head`: while ephemeral, what lies above it is in memory only."""

    config: TopicConfig = field(default_factory=TopicConfig)
    items: list[Item] = field(default_factory=list)
    stamps: dict[int, int] = field(default_factory=dict)
    floors: dict[str, int] = field(default_factory=dict)
    ranges: list[tuple[int, int]] = field(default_factory=list)
    head: int = 0
    durable_head: int = 0

    # -- what it looks like ------------------------------------------------------------------------------------------

    @property
    def bytes(self) -> int:
        return sum(each.size for each in self.items)

    @property
    def earliest(self) -> int:
        return self.items[0].seq if self.items else self.head + 1

    @property
    def evict_floor(self) -> int:
        return max([1, *(self.floors.get(cause, 1) for cause in ANNOUNCED)])

    @property
    def live_floor(self) -> int:
        return max([1, *self.floors.values()])

    @property
    def ephemeral(self) -> bool:
        return self.config.durability is Durability.EPHEMERAL

    def announced(self) -> set[int]:
        """Seqs whose loss a reader is told of."""
        return set(range(1, self.evict_floor)) | {seq for a, b in self.ranges for seq in range(a, b + 1)}

    def range_behind(self, seq: int) -> int:
        """First seq of the next loss range, head + 1 when there is none."""
        return min([a for a, _ in self.ranges if a > seq] + [self.head + 1])

    # -- what happens ------------------------------------------------------------------------------------------------

    def refuses(self, sizes: list[int]) -> str:
        """The code of the error that a write of such records gets, '' when it is taken."""
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

    def append(self, items: list[Item]) -> None:
        self.items += items
        self.stamps |= {each.seq: each.ts for each in items}
        self.head = items[-1].seq
        self.enforce_caps()

    def enforce_caps(self) -> None:
        count, size, floor = len(self.items), self.bytes, 0
        for each in self.items:
            over_records = self.config.cap_records and count > self.config.cap_records
            over_bytes = self.config.cap_bytes and size > self.config.cap_bytes
            if not (over_records or over_bytes):
                break
            count, size, floor = count - 1, size - each.size, each.seq + 1
        self.raise_floor(LossCause.CAP, floor)

    def expire(self, now_ms: int) -> None:
        if self.config.ttl_ms:
            # A deleted record is not lost to the ttl; but the floor is an upper bound, and passes over it with others.
            old = [seq for seq, ts in self.stamps.items() if now_ms - ts > self.config.ttl_ms]
            if any(each.seq in old for each in self.items):
                self.raise_floor(LossCause.TTL, old[-1] + 1)

    def raise_floor(self, cause: LossCause, floor: int) -> None:
        self.floors[cause] = max(self.floors.get(cause, 1), floor)
        while met := [each for each in self.ranges if each[0] <= self.evict_floor]:
            self.ranges = [each for each in self.ranges if each not in met]
            self.floors[LossCause.CRASH] = max([self.floors.get(LossCause.CRASH, 1), *(end + 1 for _, end in met)])
        self.items = [each for each in self.items if each.seq >= self.live_floor]

    def set_config(self, config: TopicConfig, now_ms: int) -> None:
        becomes_ephemeral = config.durability is Durability.EPHEMERAL and not self.ephemeral
        self.config = config
        if becomes_ephemeral:
            self.durable_head = self.head
        self.enforce_caps()
        self.expire(now_ms)

    def lose_memory(self, new_head: int) -> None:
        """A restart: what was in memory only is gone, and said to be."""
        if self.ephemeral and new_head > self.durable_head:
            self.items = [each for each in self.items if each.seq <= self.durable_head]
            self.stamps = {seq: ts for seq, ts in self.stamps.items() if seq <= self.durable_head}
            self.ranges.append((self.durable_head + 1, new_head))
            self.raise_floor(LossCause.CRASH, 1)
        self.head = self.durable_head = new_head
