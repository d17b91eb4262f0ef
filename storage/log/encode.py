"""Turns a write into the frames of one atomic batch. Pure.

Per record: one body, one checksum, no object that outlives the write but two numbers in arrays.

Source: docs/reference/format.md#frames.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from struct import Struct
from typing import NamedTuple

from storage.format.binary import binary_body, is_binary, opening_of
from storage.format.blocks import all_equal, put, split_block, u64s
from storage.format.checksum import digest128
from storage.format.control import TYPE_OF, Batch, Control, encode_control
from storage.format.record import DATA, PLAIN_OVERHEAD, split_body
from storage.format.wal_frame import HEADER, LENGTH, MORE, OVERHEAD, REST, FrameFlag, FrameType, encode
from storage.log.framing import FEW, Frames, framed, framed_each, little
from storage.log.submission import AppendStep, ControlStep, Step, Submission, Unit
from storage.platform.filesystem import Buffer
from storage.records.batches import AppendedRecords
from storage.records.record_columns import RecordColumns
from storage.records.values import BinaryRecord, NewRecord, StoredBodies

DURABLE, BINARY = int(FrameFlag.DURABLE), int(FrameFlag.BINARY)
TAG, NODE = int(FrameFlag.HAS_TAG), int(FrameFlag.HAS_NODE)
_U32 = Struct("<I")
# Where in an Append frame these fields are.
_FLAGS_AT, _SEQ_AT, _DATA_LEN_AT = 5, 14, 34
_join = b"".join


class EncodedUnit(NamedTuple):
    """A unit and its bytes."""

    unit: Unit
    payload: bytes
    frames: int


def internal(
    encoded: EncodedUnit,
    topic_id: int,
    ts: int,
    *,
    frees: bool = False,
    generation: int = -1,
    needs_sync: bool = True,
) -> Submission:
    """A unit that assigns no seqs, on its way: see `Submission`."""
    return Submission(
        encoded.unit,
        encoded.payload,
        frames=encoded.frames,
        topic_id=topic_id,
        ts=ts,
        needs_sync=needs_sync,
        frees=frees,
        internal=True,
        generation=generation,
    )


class WriteHeader(NamedTuple):
    """What all Append frames of a write have in common."""

    topic_id: int
    first_seq: int
    ts: int
    durable: bool
    node: bytes


def payload_hash(records: Sequence[NewRecord], node: str | None) -> bytes:
    """What tells two payloads under one idempotency key apart: over node, tag, data, meta as sent."""
    parts: list[bytes] = []
    for record in records:
        for each in (record.node or node, record.tag, record.data, record.meta):
            field = b"" if each is None else each.encode() if isinstance(each, str) else bytes(each)
            parts += (_U32.pack(len(field)), field)
    return digest128(b"".join(parts))


def stored_hash(stored: StoredBodies, node: bytes) -> bytes:
    """`payload_hash` for bodies made already: of JSON its data alone, of raw bytes the whole map."""
    tags = stored.tags if stored.tags is not None else repeat(b"", len(stored))
    datas = [body if is_binary(body) else bytes(split_body(body).data) for body in stored.bodies]
    fields = chain.from_iterable(zip(repeat(node), tags, datas, repeat(b"")))
    return digest128(_join([part for each in fields for part in (_U32.pack(len(each)), each)]))


def plain_hash(datas: Sequence[Buffer], payloads: array[int], node: bytes) -> bytes:
    """`payload_hash` for records that are data alone."""
    before = _U32.pack(len(node)) + node + bytes(4)
    lengths = split_block(little(payloads[:]), 4)
    return digest128(_join(chain.from_iterable(zip(repeat(before), lengths, datas, repeat(bytes(4))))))


def columns_hash(columns: RecordColumns, node: bytes) -> bytes:
    """`payload_hash` for records in columns."""
    of_all, nodes = columns.nodes_with(node)
    metas = None if columns.metas is None else [b"" if meta is None else meta for meta in columns.metas]
    parts = (*_fields(nodes, of_all), *_fields(columns.tags), *_fields(columns.datas), *_fields(metas))
    return digest128(_join(chain.from_iterable(zip(*parts, strict=False))))


def _fields(column: Sequence[Buffer] | None, default: bytes = b"") -> tuple[Iterable[Buffer], Iterable[Buffer]]:
    """The lengths, as they are hashed, and the fields: of each record `default` where there is no column."""
    if column is None:
        return repeat(_U32.pack(len(default))), repeat(default)
    return split_block(little(array("I", map(len, column))), _U32.size), column


def _deliver_at(record: NewRecord, now_ms: int) -> int | None:
    return record.deliver_at if record.delay_ms is None else now_ms + record.delay_ms


def _body(record: NewRecord, now_ms: int) -> bytes:
    if record.__class__ is BinaryRecord:
        return binary_body(bytes(record.data))
    tail = b""
    deliver_at = _deliver_at(record, now_ms)
    if deliver_at is not None:
        tail = b',"deliver_at":%d' % deliver_at
    if record.meta is None:
        return b'{"data":%b%b}' % (record.data, tail)
    return b'{"data":%b,"meta":%b%b}' % (record.data, record.meta, tail)


def encode_appends(
    records: Sequence[NewRecord], head: WriteHeader, payloads: array[int], *, more: bool
) -> tuple[Frames, AppendedRecords]:
    """The Append frames, and what the index needs. `more`: a frame of the same batch follows the last one."""
    topic_id, seq, ts, durable, default_node = head
    base_flags = MORE | (DURABLE if durable else 0) | (2 if default_node else 0)
    pack = REST.pack
    bodies: list[bytes] = []
    tagged: list[tuple[bytes, int]] = []
    delayed: list[tuple[int, int]] = []
    node_len = len(default_node)
    last = len(records) - 1
    for index, record in enumerate(records):
        flags = base_flags if more or index < last else base_flags & ~MORE
        plain = record.tag is None and record.node is None and record.meta is None
        binary = record.__class__ is BinaryRecord
        if plain and record.delay_ms is None and record.deliver_at is None and not binary:
            data = b'{"data":%b}' % record.data
            body = b"%b%b%b" % (pack(1, flags, topic_id, seq, ts, node_len, 0, len(data)), default_node, data)
        else:
            tag = record.tag.encode() if record.tag else b""
            node = record.node.encode() if record.node else default_node
            flags = flags & ~3 | (1 if tag else 0) | (2 if node else 0) | (BINARY if binary else 0)
            data = _body(record, ts)
            body = b"%b%b%b%b" % (pack(1, flags, topic_id, seq, ts, len(node), len(tag), len(data)), node, tag, data)
            if tag:
                tagged.append((tag, seq))
            deliver_at = _deliver_at(record, ts)
            if deliver_at:
                delayed.append((seq, deliver_at))
        bodies.append(body)
        seq += 1
    frames, sizes = framed_each(bodies)
    return frames, AppendedRecords(head.first_seq, ts, sizes, payloads, tagged, delayed or ())


def encode_plain(
    datas: Sequence[Buffer],
    payloads: array[int],
    head: WriteHeader,
    *,
    more: bool,
    binary: bool = False,
    apart: bool = False,
) -> tuple[Frames, AppendedRecords]:
    """`encode_appends` for records that are data alone, with next to no Python a record: the same bytes.

    `apart`: none of the frames says that another one of its batch follows: each is a unit.

    All headers are made as one block, in which what differs from record to record is set by strided slices.
    """
    topic_id, first_seq, ts, durable, node = head
    count, size = len(datas), payloads[0]
    if count <= FEW:
        return _encode_few(datas, payloads, head, more=more, binary=binary, apart=apart)
    fixed = OVERHEAD + len(node) + PLAIN_OVERHEAD
    flags = (0 if apart else MORE) | (DURABLE if durable else 0) | (2 if node else 0) | (BINARY if binary else 0)
    header = HEADER.pack(
        size + fixed - LENGTH.size, 1, flags, topic_id, first_seq, ts, len(node), 0, size + PLAIN_OVERHEAD
    )
    opening = header + node + (opening_of(size) if binary else DATA)
    width = len(opening)
    block = bytearray(opening * count)
    seqs = u64s(count).pack(*range(first_seq, first_seq + count))
    put(block, _SEQ_AT, width, seqs, 8, (first_seq ^ (first_seq + count - 1)).bit_length() + 7 >> 3)
    if not more:
        block[_FLAGS_AT - width] = flags & ~MORE
    if all_equal(payloads):
        sizes = array("I", [size + fixed]) * count
    else:
        sizes = array("I", [each + fixed for each in payloads])
        data_lens = little(array("I", [each + PLAIN_OVERHEAD for each in payloads]))
        put(block, _DATA_LEN_AT, width, data_lens, 4)
        if binary:
            lengths = little(payloads[:])
            for byte in range(4):
                block[width - 1 - byte :: width] = lengths[byte::4]
    headers = [*split_block(block, width, f"{LENGTH.size}x{width - LENGTH.size}s")]
    frames = framed(headers, [datas], b"" if binary else b"}", sizes)
    return frames, AppendedRecords(first_seq, ts, sizes, payloads, [])


def _encode_few(
    datas: Sequence[Buffer], payloads: array[int], head: WriteHeader, *, more: bool, binary: bool, apart: bool
) -> tuple[Frames, AppendedRecords]:
    """What `encode_plain` makes, frame by frame."""
    topic_id, seq, ts, durable, node = head
    flags = (0 if apart else MORE) | (DURABLE if durable else 0) | (NODE if node else 0) | (BINARY if binary else 0)
    pack, node_len = REST.pack, len(node)
    opening, closing = DATA, b"" if binary else b"}"
    bodies: list[bytes] = []
    for data, size in zip(datas, payloads, strict=True):
        if binary:
            opening = opening_of(size)
        if seq == head.first_seq + len(datas) - 1 and not more:
            flags &= ~MORE
        front = pack(1, flags, topic_id, seq, ts, node_len, 0, size + PLAIN_OVERHEAD)
        bodies.append(b"%b%b%b%b%b" % (front, node, opening, data, closing))
        seq += 1
    frames, sizes = framed_each(bodies)
    return frames, AppendedRecords(head.first_seq, ts, sizes, payloads, [])


def assemble(
    appends: Frames,
    appended: AppendedRecords,
    head: WriteHeader,
    *,
    before: Sequence[Control] = (),
    after: Sequence[Control] = (),
    key: str | None = None,
    hash: bytes | None = None,
    move: tuple[int, int] | None = None,
    producer: tuple[int, int, int] | None = None,
    apart: bool = False,
) -> EncodedUnit:
    """One write as one batch: Batch, `before`, the Append frames, `after`. A single Append that a Batch would say
    nothing of stands alone, and so do those of several writes (`apart`), which have nothing else with them."""
    frames = len(before) + len(appended.sizes) + len(after)
    if apart or (frames == 1 and key is None and move is None and producer is None):
        return EncodedUnit(Unit(None, [AppendStep(head.topic_id, appended, 0)]), appends.between(b"", b""), frames)
    lead = b"".join([_control(each, head, more=True) for each in before])
    trail = b"".join([_control(each, head, more=index < len(after) - 1) for index, each in enumerate(after)])
    size = len(lead) + appends.size + len(trail)
    batch = Batch(
        frames=frames, body_bytes=size, first_seq=head.first_seq, key=key, hash=hash, move=move, producer=producer
    )
    opening = _control(batch, head, more=True)
    steps: list[Step] = [_step(each, head) for each in before]
    steps.append(AppendStep(head.topic_id, appended, len(opening) + len(lead)))
    steps += [_step(each, head) for each in after]
    return EncodedUnit(Unit(batch, steps), appends.between(opening + lead, trail), frames + 1)


def encode_controls(
    values: Sequence[Control], topic_id: int, ts: int, *, durable: bool = True, nodes: Sequence[str] = ()
) -> EncodedUnit:
    """Control frames alone: one stands by itself, several are an atomic batch. `nodes`: of each, for Leases."""
    if len(values) == 1:
        [value], head = values, WriteHeader(topic_id, 0, ts, durable, nodes[0].encode() if nodes else b"")
        return EncodedUnit(Unit(None, [_step(value, head)]), _control(value, head, more=False), 1)
    heads = [WriteHeader(topic_id, 0, ts, durable, node.encode()) for node in nodes or [""] * len(values)]
    head = heads[0]
    last = len(values) - 1
    frames = [_control(each, heads[index], more=index < last) for index, each in enumerate(values)]
    unit = Unit(None, [_step(each, heads[index]) for index, each in enumerate(values)])
    following = b"".join(frames)
    batch = Batch(frames=len(frames), body_bytes=len(following))
    return EncodedUnit(Unit(batch, unit.steps), _control(batch, head, more=True) + following, len(frames) + 1)


# Written with the durable flag whatever the log's class: topics, their settings, cursors of consumers and states are
# always synced before the ack.
_ALWAYS_DURABLE = frozenset(
    {
        FrameType.TOPIC_CREATE,
        FrameType.TOPIC_DELETE,
        FrameType.ROUTER_CREATE,
        FrameType.ROUTER_DELETE,
        FrameType.CONFIG_UPDATE,
        FrameType.CONSUMER,
        FrameType.STATE,
    }
)


def _control(value: Control, head: WriteHeader, *, more: bool) -> bytes:
    type_ = TYPE_OF[type(value)]
    durable = head.durable or type_ in _ALWAYS_DURABLE
    flags = (MORE if more else 0) | (DURABLE if durable else 0)
    node = head.node if type_ == FrameType.LEASE else b""
    return encode(type_, flags, head.topic_id, 0, head.ts, node, data=encode_control(value))


def _step(value: Control, head: WriteHeader) -> ControlStep:
    type_ = TYPE_OF[type(value)]
    node = head.node.decode() if type_ == FrameType.LEASE else ""
    return ControlStep(type_, head.topic_id, head.ts, value, node)
