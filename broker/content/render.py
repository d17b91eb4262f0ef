"""Records as JSON: `data` and `meta` are sent as the bytes that were received.

Source: docs/architecture.md#one-append-from-the-socket-to-the-disk.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Final

import msgspec

import kernel
from kernel import RowShape
from storage.records import FrameRecords, ReadResult, StoredRecord, parts_of, split
from storage.segments import SegmentsView

if TYPE_CHECKING:
    from storage.routers import Waited


#: Bytes of a large answer that are rendered before other tasks run: about a millisecond.
SLICE_BYTES: Final = 256 * 1024


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Which parts of a record an answer contains."""

    tags: bool = False
    meta: bool = True
    data: bool = True
    #: Include the stored body too, if it differs from the one shown.
    stored: bool = False

    @property
    def row(self) -> int:
        """The shape as the kernel's argument."""
        return (
            self.tags * RowShape.TAGS.value
            + self.meta * RowShape.META.value
            + self.data * RowShape.DATA.value
            + self.stored * RowShape.STORED.value
        )


def records(found: Sequence[StoredRecord], shape: Shape) -> bytes:
    """The records as JSON objects, separated by commas."""
    row = shape.row
    if isinstance(found, FrameRecords):
        return kernel.render_rows(found.buffer, found.columns, row)
    return b",".join(
        [
            kernel.render_rows(part.buffer, part.columns, row)
            if isinstance(part, FrameRecords)
            else kernel.render_records(part, row)
            for part in parts_of(found)
        ]
    )


async def records_in_slices(
    found: Sequence[StoredRecord], shape: Shape, size: int, acquire: Callable[[int], Awaitable[None]]
) -> bytes:
    """Like `records`, for records of `size` bytes, in slices; each slice waits for `acquire`, so that others run."""
    each = max(1, len(found) * SLICE_BYTES // max(1, size))
    texts: list[bytes] = []
    for part in parts_of(found):
        for at in range(0, len(part), each):
            await acquire(SLICE_BYTES)
            texts.append(records(part[at : at + each], shape))
    return b",".join(texts)


#: A JSON string.
quoted: Final[Callable[[str], bytes]] = msgspec.json.Encoder().encode


def topic_fields(address: str) -> bytes:
    """A topic's name in an answer, followed by the partition unless that is 0."""
    if "/" not in address:
        return quoted(address)
    name, partition = split(address)
    return b'%b,"partition":%d' % (quoted(name), partition)


def diff(result: ReadResult, shape: Shape, started: float, more: bytes = b"", text: bytes | None = None) -> bytes:
    """The answer to a read. `started`: the perf_counter when the request arrived; `more`: further fields; `text`: the
    records, if they are already rendered."""
    tombstone = b"null" if result.tombstone is None else msgspec.json.encode(result.tombstone)
    corrupt = b"" if not result.corrupt_seqs else b',"corrupt_seqs":' + msgspec.json.encode(result.corrupt_seqs)
    if text is None:
        text = records(result.records, shape)
    return (
        b'{"topic":%b,"records":[%b],"next_from_seq":%d,"head_seq":%d,"earliest_seq":%d,"caught_up":%b,"lag":%d,'
        b'"tombstone":%b%b%b,"performance":{"server_total_ms":%.3f,"records_scanned":%d,"cold_segments_read":%d}}'
    ) % (
        topic_fields(result.topic),
        text,
        result.next_from_seq,
        result.head_seq,
        result.earliest_seq,
        b"true" if result.next_from_seq == result.head_seq else b"false",
        result.head_seq - result.next_from_seq,
        tombstone,
        corrupt,
        more,
        (perf_counter() - started) * 1000,
        result.records_scanned,
        result.cold_segments_read,
    )


async def large_diff(
    result: ReadResult, shape: Shape, started: float, acquire: Callable[[int], Awaitable[None]], more: bytes = b""
) -> bytes:
    """Like `diff`, rendered in slices. Removes the records from `result`, so that memory holds the answer once."""
    text = await records_in_slices(result.records, shape, result.bytes, acquire)
    result.records = ()
    return diff(result, shape, started, more, text)


def routed(answer: bytes, waited: Waited | None) -> bytes:
    """The answer to a read, with the wait for routers into its topic added to the performance at its end."""
    if waited is None:
        return answer
    blocked = b',"router_blocked":%b' % msgspec.json.encode(waited.blocked) if waited.blocked else b""
    return b'%b,"router_wait_ms":%.3f}%b}' % (answer[:-2], waited.wait_ms, blocked)


def one_record(topic: str, record: StoredRecord, shape: Shape, started: float) -> bytes:
    """The answer to a point read: the fields of the record and its topic in one object."""
    text = records([record], shape)
    elapsed_ms = (perf_counter() - started) * 1000
    return b'%b,"topic":%b,"performance":{"server_total_ms":%.3f}}' % (text[:-1], topic_fields(topic), elapsed_ms)


def segments(view: SegmentsView, started: float) -> bytes:
    """The answer that lists the segments of a topic."""
    elapsed_ms = (perf_counter() - started) * 1000
    return b'%b,"performance":{"server_total_ms":%.3f}}' % (msgspec.json.encode(view)[:-1], elapsed_ms)
