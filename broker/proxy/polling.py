"""Reads partitions from given positions, and waits for more records.

Source: docs/guides/kafka.md#how-kafka-maps-to-topics, docs/guides/rest-proxy.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from broker.kafka import to_kafka
from broker.proxy.assignment import Partition
from broker.proxy.records import Record
from broker.scheduling import Slots
from storage import DataError, ShuttingDown, TopicNotFound, Unavailable
from storage.records import ReadQuery, Tombstone, address

if TYPE_CHECKING:
    from storage import Engine

DEFAULT_TIMEOUT_MS, MAX_TIMEOUT_MS = 1000, 30_000
DEFAULT_BYTES, MAX_BYTES = 1 << 20, 8 << 20
#: The most records in one answer.
MAX_RECORDS: Final = 2000


class Limits(NamedTuple):
    """`timeout_ms`: how long to wait for `min_bytes` of keys and values."""

    timeout_ms: int = DEFAULT_TIMEOUT_MS
    max_bytes: int = DEFAULT_BYTES
    min_bytes: int = 1
    max_records: int = MAX_RECORDS
    skip_corrupt: bool = False


class Lost(NamedTuple):
    """Lost records: offsets `begin` to `end`, both inclusive."""

    partition: Partition
    begin: int
    end: int
    reason: str

    @classmethod
    def of(cls, partition: Partition, tombstone: Tombstone) -> Lost:
        return cls(partition, tombstone.gap_from - 1, tombstone.gap_to - 1, tombstone.reason)

    def __str__(self) -> str:
        """The form in a header."""
        topic, number = self.partition
        return f"{topic}/{number} {self.begin}-{self.end} {self.reason}"

    def as_event(self) -> dict[str, Any]:
        """The form in an event."""
        topic, number = self.partition
        return {"topic": topic, "partition": number, "from": self.begin, "to": self.end, "reason": self.reason}


class Streaming:
    """Slots for readers that already have a stream: they are not counted again."""

    def hold(self) -> AbstractContextManager[None]:
        return nullcontext()


class ProxyRead(NamedTuple):
    """The result of a read, and the offsets that come next."""

    records: list[Record]
    lost: list[Lost]
    corrupt: list[tuple[Partition, int]]
    positions: dict[Partition, int]
    #: The offsets where the read began.
    began: dict[Partition, int]

    @property
    def empty(self) -> bool:
        return not self.records and not self.lost and not self.corrupt


async def read(engine: Engine, positions: Mapping[Partition, int], limits: Limits, parking: Slots) -> ProxyRead:
    """Read the partitions (at least one) in rotation. Waits for a record, at most `timeout_ms`.

    A loss is reported once, and the positions move beyond it. An unreadable partition is an error only if no records
    before the damage can be returned. Raises DataError, Unavailable, TopicNotFound (deleted during the wait),
    LimitReached (too many wait).
    """
    deadline = monotonic() + min(limits.timeout_ms, MAX_TIMEOUT_MS) / 1000
    found = ProxyRead([], [], [], dict(positions), dict(positions))
    size = await _add(engine, found, limits, 0)
    if not _waits(found, size, limits, deadline):
        return found
    with parking.hold():
        while _waits(found, size, limits, deadline):
            if not await _moved(engine, found.positions, deadline):
                break
            size = await _add(engine, found, limits, size)
    return found


def _waits(found: ProxyRead, size: int, limits: Limits, deadline: float) -> bool:
    if found.lost or found.corrupt or len(found.records) >= limits.max_records:
        return False
    return size < min(limits.min_bytes, limits.max_bytes) and monotonic() < deadline


async def _add(engine: Engine, found: ProxyRead, limits: Limits, size: int) -> int:
    """Read more of each partition. Returns the bytes of all records so far."""
    # The partition that was read longest ago is first, so that a busy one does not starve others.
    for partition in list(found.positions):
        room, max_records_left = limits.max_bytes - size, limits.max_records - len(found.records)
        if max_records_left <= 0 or (room <= 0 and found.records):
            break
        try:
            size += await _read_one(engine, found, partition, max(1, room), max_records_left, limits.skip_corrupt)
        except (DataError, Unavailable):
            if found.empty:
                raise
            break  # the next read raises the error
    return size


async def _read_one(
    engine: Engine, found: ProxyRead, partition: Partition, max_bytes: int, limit: int, skip_corrupt: bool
) -> int:
    topic, number = partition
    query = ReadQuery(from_seq=found.positions[partition], limit=limit, max_bytes=max_bytes, skip_corrupt=skip_corrupt)
    result = await engine.read(address(topic, number), query)
    size = 0
    for seq, ts, node, tag, body in result.records:
        key, value, headers, created = to_kafka(body, tag, node, ts)
        size += len(key or b"") + len(value or b"") + 1
        found.records.append(Record(topic, number, seq - 1, key, value, headers, created))
    if result.tombstone is not None:
        found.lost.append(Lost.of(partition, result.tombstone))
    found.corrupt.extend((partition, seq - 1) for seq in result.corrupt_seqs or ())
    del found.positions[partition]
    found.positions[partition] = result.next_from_seq
    return size


async def _moved(engine: Engine, positions: Mapping[Partition, int], deadline: float) -> bool:
    """Wait until a partition has more records. False: the deadline has passed, or the broker stops."""
    left_ms = (deadline - monotonic()) * 1000
    if left_ms <= 0:
        return False
    waits = [
        asyncio.ensure_future(engine.wait_beyond(address(*partition), offset, left_ms))
        for partition, offset in positions.items()
    ]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        return any(_result(wait) for wait in waits if wait.done())
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.wait(waits)


def _result(wait: asyncio.Future[bool]) -> bool:
    try:
        return wait.result()
    except ShuttingDown:
        return False
    except TopicNotFound:
        return True  # the next read raises the error


def bounds(engine: Engine, partition: Partition) -> tuple[int, int]:
    """The first existing offset, and the next one to assign. Raises TopicNotFound."""
    state = engine.state(address(*partition))
    return state.earliest_seq - 1, state.head_seq
