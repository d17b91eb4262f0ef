"""Reads the records of jobs that the tail cache does not have.

Source: docs/reference/api.md#queues.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from storage.errors import RecordCorrupt, Unreadable
from storage.format import payload_sizes
from storage.reads import Reader
from storage.records import FrameRecords, ReadQuery, StoredRecord, parts_of
from storage.state import SizedRecords, Topic, consecutive_ranges

#: The most bytes of records in the answer to one claim, beyond its first record.
MAX_BYTES = 8 << 20
#: After the disk has failed this many adjacent records of a segment, its other records are not read.
MOST_FAILURES = 4


class FoundJobs(NamedTuple):
    """Records by seq, and their payload bytes. A missing record is corrupt, unreadable (with the reason), gone, or over
    MAX_BYTES."""

    records: dict[int, StoredRecord]
    sizes: dict[int, int]
    corrupt: list[int]
    unreadable: dict[int, Unreadable]


def by_seq(read: SizedRecords) -> FoundJobs:
    """The same records by seq."""
    seqs = [record.seq for record in read.records]
    return FoundJobs(dict(zip(seqs, read.records, strict=True)), dict(zip(seqs, read.sizes, strict=True)), [], {})


def in_memory(topic: Topic, seq: int) -> bool:
    """Whether the record with this seq can be read without a file."""
    log = topic.log
    return seq > log.held.flushed and any(slice_.batch_seq in log.cached for slice_ in log.tail.slices(seq, seq + 1))


def whole(found: FoundJobs, seqs: Sequence[int]) -> SizedRecords | None:
    """The same records in order, if all of them are there."""
    if len(found.records) < len(seqs) or found.corrupt:
        return None
    return SizedRecords([*map(found.records.__getitem__, seqs)], [*map(found.sizes.__getitem__, seqs)])


async def read(reader: Reader, topic: Topic, seqs: Sequence[int], *, sized: bool = True) -> FoundJobs:
    """Read the records with these ascending seqs. `sized`: return their payload bytes as well. Raises TopicNotFound."""
    found = FoundJobs({}, {}, [], {})
    size = 0
    for first, last in consecutive_ranges(seqs):
        at = first - 1
        while at < last:
            if size >= MAX_BYTES:
                return found
            query = ReadQuery(from_seq=at, limit=last - at, max_bytes=MAX_BYTES - size, skip_corrupt=True)
            try:
                result = await reader.read(topic, query)
            except Unreadable as error:
                at = _mark_unreadable(found.unreadable, error, at, last)
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


def _mark_unreadable(unreadable: dict[int, Unreadable], error: Unreadable, at: int, last: int) -> int:
    """Note that the disk fails the seqs after `at` up to `last`. Returns where to continue."""
    first = error.detail["seq"]
    if first > last:  # no job is left up to there
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
