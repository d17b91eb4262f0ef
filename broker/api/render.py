"""Records and jobs as JSON, by slicing: `data` and `meta` go out as the bytes they came in.

Source: docs/architecture.md#one-append-from-the-socket-to-the-disk.
"""

from __future__ import annotations

import re
import struct
from base64 import b64encode
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain
from time import perf_counter
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from broker.api.render_columns import job_objects, record_objects
from storage.format.binary import MARK, as_json, is_binary
from storage.queues.lease_queue import ClaimedBatch, ClaimedJob
from storage.records.contiguous import ContiguousRecords, parts_of
from storage.records.partitions import split
from storage.records.values import ReadResult, StoredRecord
from storage.segments.view import SegmentsView
from storage.state.queues.values import Settled

if TYPE_CHECKING:
    from storage.queues.lease_queue import Claimed
    from storage.routers.waiting import Waited


#: Of large answers so much is rendered without letting others run: about a millisecond.
SLICE_BYTES: Final = 256 * 1024

DUE_KEY = b',"deliver_at":'
#: How a stored body ends that says when it is due. Nothing else can end so: what stands before the last brace of a
#: body is a whole value of data or meta.
_DUE = re.compile(rb',"deliver_at":\d+}\Z')
_DUE_BYTES = len(DUE_KEY) + 21


#: Further keys of records that came from Kafka clients, which are theirs alone.
CT_KEY, H_KEY = b',"ct":', b',"h":'
_STAMPED = re.compile(rb',"ct":-?\d+}\Z')

_JOB = b'{"$seq":%d,"lease_id":"lease_%016x","deadline":%d,"$ts":%d%b,"deliveries":%d,%b'
#: From so many jobs on it is quicker to write them all by one template.
_UNIFORM_PAYS = 4
_LINE_BREAKS = bytes.maketrans(b"\r\n", b"  ")


class _Body(msgspec.Struct):
    """A stored body taken apart; further keys in it are not for readers."""

    data: Raw
    meta: Raw | UnsetType = UNSET


_body = msgspec.json.Decoder(_Body)


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Which parts of a record are given."""

    tags: bool = False
    meta: bool = True
    data: bool = True
    #: The stored body as well, where it is not what is shown.
    stored: bool = False


_WHOLE = Shape()


def records(found: Sequence[StoredRecord], shape: Shape) -> bytes:
    """The records as JSON objects, separated by commas."""
    if shape.meta and shape.data and not shape.stored:
        parts = parts_of(found)
        if len(parts) == 1:
            return _part(parts[0], shape)
        return b",".join([_part(part, shape) for part in parts])
    names = Names(shape.tags)
    return b",".join(
        [
            b'{"$seq":%d,"$ts":%d%b%b%b}'
            % (
                seq,
                ts,
                names[node, tag] if node or tag else b"",
                _stored(body) if shape.stored else b"",
                _parts(body, shape),
            )
            for seq, ts, node, tag, body in found
        ]
    )


async def records_in_slices(
    found: Sequence[StoredRecord], shape: Shape, size: int, acquire: Callable[[int], Awaitable[None]]
) -> bytes:
    """The same of records of `size` bytes, in slices, each in its `acquire`: others are served in between."""
    each = max(1, len(found) * SLICE_BYTES // max(1, size))
    texts: list[bytes] = []
    for part in parts_of(found):
        for at in range(0, len(part), each):
            end = min(len(part), at + each)
            await acquire(SLICE_BYTES)
            texts.append(records(part.between(at, end) if isinstance(part, ContiguousRecords) else part[at:end], shape))
    return b",".join(texts)


def _part(found: Sequence[StoredRecord], shape: Shape) -> bytes:
    """The same of one of the sequences that they are made of, as stored where nothing in it is to be left out."""
    text = record_objects(found) if isinstance(found, ContiguousRecords) else None
    if text is not None:
        return text
    text = b",".join(_whole(found, shape))
    if not to_be_shown(text):
        return text
    return b",".join(_whole([record._replace(body=shown(record.body)) for record in found], shape))


def _whole(found: Sequence[StoredRecord], shape: Shape) -> list[bytes]:
    names = Names(shape.tags)
    return [
        b'{"$seq":%d,"$ts":%d%b,%b' % (seq, ts, names[node, tag] if node or tag else b"", body[1:])
        for seq, ts, node, tag, body in found
    ]


def to_be_shown(text: bytes) -> bool:
    """Whether `shown` may have something to do for one of the bodies in this text."""
    return DUE_KEY in text or MARK in text or CT_KEY in text or H_KEY in text


def shown(body: bytes) -> bytes:
    """A stored body as readers see it: raw bytes in Base64, and without what is nobody's to see: the time from which on
    it may be handed out as a job, and what a Kafka client sent with it but data and meta."""
    if is_binary(body):
        return as_json(body)
    if H_KEY in body:
        parts = _body.decode(body)
        meta = b"" if parts.meta is UNSET else b',"meta":%b' % parts.meta
        return b'{"data":%b%b}' % (parts.data, meta)
    if CT_KEY in body:
        body = _STAMPED.sub(b"}", body)
    return _DUE.sub(b"}", body) if DUE_KEY in body[-_DUE_BYTES:] else body


def _parts(body: bytes, shape: Shape) -> bytes:
    parts = _body.decode(as_json(body))
    out = b',"data":' + parts.data if shape.data else b""
    if shape.meta and parts.meta is not UNSET:
        out += b',"meta":' + bytes(parts.meta)
    return out


def _stored(body: bytes) -> bytes:
    """Whatever is in it besides data and meta, be it a space."""
    said = b"{%b}" % _parts(body, _WHOLE)[1:]
    return b"" if said == body else b',"$stored":"%b"' % b64encode(body)


class Names(dict[tuple[bytes, bytes], bytes]):
    """`,"$node":…` and `,"$tag":…` for a pair of them; an answer holds few different ones."""

    def __init__(self, tags: bool) -> None:
        super().__init__()
        self._tags = tags

    def __missing__(self, key: tuple[bytes, bytes]) -> bytes:
        node, tag = key
        text = b""
        if node:
            text = b',"$node":' + quoted(node.decode())
        if tag and self._tags:
            text += b',"$tag":' + quoted(tag.decode())
        self[key] = text
        return text


#: A JSON string.
quoted: Final[Callable[[str], bytes]] = msgspec.json.Encoder().encode


def topic_fields(address: str) -> bytes:
    """A topic's name in an answer, and behind it the partition, unless that is 0."""
    name, partition = split(address)
    return b'%b,"partition":%d' % (quoted(name), partition) if partition else quoted(name)


def diff(result: ReadResult, shape: Shape, started: float, more: bytes = b"", text: bytes | None = None) -> bytes:
    """The answer to a read; `started` is when its request came, by perf_counter, `more` further fields of it. `text`:
    its records, where they are rendered already."""
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
    """The same, rendered in turns. The records are gone from `result` then: an answer is not kept twice."""
    text = await records_in_slices(result.records, shape, result.bytes, acquire)
    result.records = ()
    return diff(result, shape, started, more, text)


def routed(answer: bytes, waited: Waited | None) -> bytes:
    """The answer to a read, which ends with its performance, with what it had to wait for routers into its topic."""
    if waited is None:
        return answer
    blocked = b',"router_blocked":%b' % msgspec.json.encode(waited.blocked) if waited.blocked else b""
    return b'%b,"router_wait_ms":%.3f}%b}' % (answer[:-2], waited.wait_ms, blocked)


def one_record(topic: str, record: StoredRecord, shape: Shape, started: float) -> bytes:
    """The answer to a point read: the record with its topic, flat."""
    text = records([record], shape)
    elapsed_ms = (perf_counter() - started) * 1000
    return b'%b,"topic":%b,"performance":{"server_total_ms":%.3f}}' % (text[:-1], topic_fields(topic), elapsed_ms)


def segments(view: SegmentsView, started: float) -> bytes:
    """What the segments of a topic hold."""
    elapsed_ms = (perf_counter() - started) * 1000
    return b'%b,"performance":{"server_total_ms":%.3f}}' % (msgspec.json.encode(view)[:-1], elapsed_ms)


# -- jobs --------------------------------------------------------------------------------------------------------------


def claimed(claim: Claimed, started: float) -> bytes:
    """The answer to a claim; `started` is when its request came, by perf_counter."""
    text = jobs(claim.jobs)
    return b'{"topic":%b,"claimed":[%b],"count":%d,"ready":%d,"performance":{"server_total_ms":%.3f}}' % (
        quoted(claim.topic),
        text,
        len(claim.jobs),
        claim.ready,
        (perf_counter() - started) * 1000,
    )


def jobs(found: Sequence[ClaimedJob]) -> bytes:
    """The jobs as JSON objects, separated by commas."""
    text = None
    if len(found) >= _UNIFORM_PAYS:
        text = _batch_objects(found) if isinstance(found, ClaimedBatch) else None
        if text is not None:
            return text
        text = _uniform_objects(found)
    names = Names(tags=True)
    if text is None:
        text = b",".join(
            [
                _JOB % (seq, lease_id, deadline, ts, names[node, tag] if node or tag else b"", deliveries, body[1:])
                for (seq, ts, node, tag, body), lease_id, deadline, deliveries in found
            ]
        )
    if not to_be_shown(text):
        return text
    return b",".join([_job(job, names) for job in found])


def _batch_objects(found: ClaimedBatch) -> bytes | None:
    """The same, of jobs whose records lie one behind the other; None of others."""
    texts: list[bytes] = []
    at = 0
    for part in parts_of(found.records):
        lease_ids = found.lease_ids[at : at + len(part)]
        text = job_objects(part, lease_ids, found.deadline) if isinstance(part, ContiguousRecords) else None
        if text is None:
            return None
        texts.append(text)
        at += len(part)
    return b",".join(texts)


def _uniform_objects(found: Sequence[ClaimedJob]) -> bytes | None:
    """The same, of jobs that differ in little, in one go; None of others."""
    records, lease_ids, deadlines, deliveries = zip(*found, strict=True)
    seqs, stamps, nodes, tags, bodies = zip(*records, strict=True)
    if any(nodes) or any(tags) or len({*deadlines}) > 1 or len({*deliveries}) > 1:
        return None
    one = b'{"$seq":%%d,"lease_id":"lease_%%b","deadline":%d,"$ts":%%d,"deliveries":%d,%%b,'
    count = len(found)
    tokens = struct.pack(f">{count}Q", *lease_ids).hex(",", 8).encode().split(b",")
    parts = chain.from_iterable(zip(seqs, tokens, stamps, [body[1:] for body in bodies], strict=True))
    return ((one % (deadlines[0], deliveries[0])) * count)[:-1] % (*parts,)


def _job(job: ClaimedJob, names: Names) -> bytes:
    (seq, ts, node, tag, body), lease_id, deadline, deliveries = job
    labels = names[node, tag] if node or tag else b""
    return _JOB % (seq, lease_id, deadline, ts, labels, deliveries, shown(body)[1:])


def job_event(topic: bytes, job: ClaimedJob) -> bytes:
    """A job as an event of a stream; `topic` is the name as JSON."""
    text = _job(job, Names(tags=True))
    if b"\n" in text or b"\r" in text:  # between tokens, where a space is as good; a line of an event ends there
        text = text.translate(_LINE_BREAKS)
    return b'event: job\nid: %d\ndata: {"topic":%b,%b\n\n' % (job.record.seq, topic, text[1:])


def ack_answer(done: Settled, counted: bytes, started: float) -> bytes:
    """The answer to an ack, nack or extend, whose count goes by the name of `counted`."""
    deadlines = b',"deadlines":%b' % msgspec.json.encode(done.deadlines) if counted == b"extended" else b""
    return (b'{"topic":%b,"%b":%d,"skipped":%b%b,"ready":%d,"in_flight":%d,"performance":{"server_total_ms":%.3f}}') % (
        quoted(done.topic),
        counted,
        len(done.done),
        msgspec.json.encode(done.skipped),
        deadlines,
        done.ready,
        done.in_flight,
        (perf_counter() - started) * 1000,
    )
