"""Reads the records of jobs: from the tail cache at once, or awaited from wherever they are. Source: api.md §6."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from storage.catalog import Topic
from storage.errors import RecordCorrupt
from storage.read import Reader
from storage.records import ReadQuery, StoredRecord
from storage.scan import Piece, Scan

if TYPE_CHECKING:
    from storage.core import EngineCore

#: Most bytes of records that one claim is answered with, beyond its first.
MAX_BYTES = 8 << 20


class Found(NamedTuple):
    """Records by seq; those asked for and in neither are gone, or over MAX_BYTES (`full`)."""

    records: dict[int, StoredRecord]
    corrupt: list[int]
    full: bool


def cached(engine: EngineCore, topic: Topic, seqs: Sequence[int]) -> Found | None:
    """All of them, if their bytes are in memory and small enough; else None."""
    log = topic.log
    if seqs[0] <= log.held.absorbed or seqs[-1] > log.head:
        return None
    scan = Scan(topic, ReadQuery(limit=len(seqs), max_bytes=MAX_BYTES), engine.now_ms(), len(seqs))
    for first, last in runs(seqs):
        for span in log.tail.spans(first, last + 1):
            kept = log.cached.get(span.batch_seq)
            if kept is None:
                return None
            dead = log.tail.dead_between(span.first_seq, len(span.sizes))
            scan.take(Piece(span, kept[0], kept[1] + span.offset, True, dead))
    if len(scan.records) < len(seqs):
        return None  # too many bytes, or expired: the long way tells
    return Found({record.seq: record for record in scan.records}, [], False)


async def read(engine: EngineCore, topic: Topic, seqs: Sequence[int]) -> Found:
    """The records with these ascending seqs. Raises TopicNotFound, Unavailable."""
    found = Found({}, [], False)
    reader, size = Reader(engine), 0
    for first, last in runs(seqs):
        at = first - 1
        while at < last:
            if size >= MAX_BYTES:
                return found._replace(full=True)
            query = ReadQuery(from_seq=at, limit=last - at, max_bytes=MAX_BYTES - size, skip_corrupt=True)
            result = await reader.read(topic, query)
            for record in result.records:
                if record.seq <= last:
                    found.records[record.seq] = record
                    size += len(record.body)
            found.corrupt.extend(seq for seq in result.corrupt_seqs or () if seq <= last)
            if result.next_from_seq <= at:
                break
            at = result.next_from_seq
    return found


def corrupt(topic: str, seq: int) -> RecordCorrupt:
    """What is said of a job whose record fails its check."""
    return RecordCorrupt(f"Record {seq} of {topic} fails its checksum.", topic=topic, seq=seq)


def runs(seqs: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(first, last) of each stretch of consecutive seqs."""
    if seqs[-1] - seqs[0] + 1 == len(seqs):
        yield seqs[0], seqs[-1]
        return
    first = last = seqs[0]
    for seq in seqs[1:]:
        if seq != last + 1:
            yield first, last
            first = seq
        last = seq
    yield first, last
