"""Reads the records of jobs: at once from the tail cache, or awaited from wherever they are.

Source: docs/reference/api.md#queues.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from storage.errors import RecordCorrupt, Unreadable
from storage.format.record import payload_sizes
from storage.reads.scan import Piece, Scan
from storage.records.batch_slices import consecutive_ranges
from storage.records.frame_records import FrameRecords, parts_of
from storage.records.values import ReadQuery, StoredRecord
from storage.state.catalog import Topic

if TYPE_CHECKING:
    from storage.engine import Engine

#: Most bytes of records in the answer to one claim, beyond its first record.
MAX_BYTES = 8 << 20


#: After this many adjacent records in a segment that the disk fails, its other records are not read.
MOST_FAILURES = 4


class Found(NamedTuple):
    """Records by seq, and their payload bytes. Missing ones are corrupt, unreadable (and why), gone, or over
    MAX_BYTES."""

    records: dict[int, StoredRecord]
    sizes: dict[int, int]
    corrupt: list[int]
    unreadable: dict[int, Unreadable]


class Read(NamedTuple):
    """All requested records, in order, and their payload bytes."""

    records: Sequence[StoredRecord]
    sizes: Sequence[int]

    def found(self) -> Found:
        """The same by seq."""
        seqs = [record.seq for record in self.records]
        return Found(dict(zip(seqs, self.records, strict=True)), dict(zip(seqs, self.sizes, strict=True)), [], {})


def cached(engine: Engine, topic: Topic, seqs: Sequence[int]) -> Read | None:
    """All of them, if their bytes are in memory and within the limit; else None."""
    log = topic.log
    if seqs[0] <= log.held.flushed or seqs[-1] > log.head:
        return None
    sizes: list[int] = []
    query = ReadQuery(limit=len(seqs), max_bytes=MAX_BYTES, skip_corrupt=True)  # nothing is raised here
    scan = Scan(topic, query, engine.now_ms(), len(seqs))
    for first, last in consecutive_ranges(seqs):
        sizes += log.tail.payloads(first, last + 1)
        for slice_ in log.tail.slices(first, last + 1):
            in_cache = log.cached.get(slice_.batch_seq)
            if in_cache is None:
                return None
            dead = log.tail.dead_between(slice_.first_seq, len(slice_.sizes))
            scan.take(Piece(slice_, in_cache[0], in_cache[1] + slice_.offset, True, dead))
    if len(scan.records) < len(seqs):
        return None  # too many bytes, expired, or damaged: `read` handles it
    return Read(scan.records, sizes)


def in_memory(topic: Topic, seq: int) -> bool:
    """Whether the record with this seq can be read without a file."""
    log = topic.log
    return seq > log.held.flushed and any(slice_.batch_seq in log.cached for slice_ in log.tail.slices(seq, seq + 1))


def whole(found: Found, seqs: Sequence[int]) -> Read | None:
    """The same in order, if all of them are there."""
    if len(found.records) < len(seqs) or found.corrupt:
        return None
    return Read([*map(found.records.__getitem__, seqs)], [*map(found.sizes.__getitem__, seqs)])


async def read(engine: Engine, topic: Topic, seqs: Sequence[int], *, sized: bool = True) -> Found:
    """The records with these ascending seqs. Raises TopicNotFound. `sized`: their payload bytes are wanted as well."""
    found = Found({}, {}, [], {})
    reader, size = engine.reader, 0
    for first, last in consecutive_ranges(seqs):
        at = first - 1
        while at < last:
            if size >= MAX_BYTES:
                return found
            query = ReadQuery(from_seq=at, limit=last - at, max_bytes=MAX_BYTES - size, skip_corrupt=True)
            try:
                result = await reader.read(topic, query)
            except Unreadable as error:
                at = _pass(found.unreadable, error, at, last)
                continue
            records = [record for record in result.records if record.seq <= last]
            read = [record.seq for record in records]
            found.records.update(zip(read, records, strict=True))
            if sized:
                found.sizes.update(zip(read, sizes_of(records), strict=True))
            size += sum([len(record.body) for record in records])
            found.corrupt.extend(seq for seq in result.corrupt_seqs or () if seq <= last)
            if result.next_from_seq <= at:
                break
            at = result.next_from_seq
    return found


def _pass(unreadable: dict[int, Unreadable], error: Unreadable, at: int, last: int) -> int:
    """Note the seqs up to `last` after `at` that the disk fails; returns where to continue."""
    first = error.detail["seq"]
    if first > last:  # there is none left up to there
        return last
    through = first
    if all(first - back in unreadable for back in range(1, MOST_FAILURES)):
        through = min(last, max(first, error.detail.get("to_seq", first)))
    unreadable.update(dict.fromkeys(range(first, through + 1), error))
    return max(at + 1, through)


def sizes_of(records: Sequence[StoredRecord]) -> list[int]:
    """Payload bytes of each."""
    found: list[int] = []
    for part in parts_of(records):
        found += part.payloads() if isinstance(part, FrameRecords) else payload_sizes([record.body for record in part])
    return found


def corrupt(topic: str, seq: int) -> RecordCorrupt:
    """The error for a job whose record fails its check."""
    return RecordCorrupt(f"Record {seq} of {topic} fails its checksum.", topic=topic, seq=seq)
