"""Turns a write into the frames of one atomic batch. Pure. Source: storage.md §2.

Per record: one body, one checksum, no object that outlives the write but two numbers in arrays.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from storage.format.checksum import checksum, checksum_bytes, digest128
from storage.format.control import TYPE_OF, Batch, Control, encode_control
from storage.format.wal_frame import CHECKSUM, LENGTH, MORE, OVERHEAD, REST, FrameFlag, FrameType, encode
from storage.records import NewRecord
from storage.tail import Run
from storage.wal.submission import ControlStep, RunStep, Step, Unit

DURABLE = int(FrameFlag.DURABLE)
_U32 = Struct("<I")
# The two halves of an Append frame's header around its seq.
_BEGIN = Struct("<BBQ")
_MIDDLE = Struct("<QHHI")


class EncodedUnit(NamedTuple):
    """A unit and its bytes."""

    unit: Unit
    payload: bytes
    frames: int


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


def _body(record: NewRecord, now_ms: int) -> bytes:
    tail = b""
    deliver_at = record.deliver_at if record.delay_ms is None else now_ms + record.delay_ms
    if deliver_at is not None:
        tail = b',"deliver_at":%d' % deliver_at
    if record.meta is None:
        return b'{"data":%b%b}' % (record.data, tail)
    return b'{"data":%b,"meta":%b%b}' % (record.data, record.meta, tail)


def encode_appends(
    records: Sequence[NewRecord], head: WriteHeader, payloads: array[int], *, more: bool
) -> tuple[list[bytes], Run]:
    """The Append frames in pieces, and what the index needs. `more`: a frame of the same batch follows the last one."""
    topic_id, seq, ts, durable, default_node = head
    base_flags = MORE | (DURABLE if durable else 0) | (2 if default_node else 0)
    pack, pack_length, pack_sum = REST.pack, LENGTH.pack, CHECKSUM.pack
    pieces: list[bytes] = []
    add = pieces.append
    sizes = array("I")
    add_size = sizes.append
    tagged: list[tuple[bytes, int]] = []
    node_len = len(default_node)
    last = len(records) - 1
    for index, record in enumerate(records):
        flags = base_flags if more or index < last else base_flags & ~MORE
        plain = record.tag is None and record.node is None and record.meta is None
        if plain and record.delay_ms is None and record.deliver_at is None:
            data = b'{"data":%b}' % record.data
            body = b"%b%b%b" % (pack(1, flags, topic_id, seq, ts, node_len, 0, len(data)), default_node, data)
        else:
            tag = record.tag.encode() if record.tag else b""
            node = record.node.encode() if record.node else default_node
            flags = flags & ~3 | (1 if tag else 0) | (2 if node else 0)
            data = _body(record, ts)
            body = b"%b%b%b%b" % (pack(1, flags, topic_id, seq, ts, len(node), len(tag), len(data)), node, tag, data)
            if tag:
                tagged.append((tag, seq))
        size = len(body) + 8
        add(pack_length(size))
        add(body)
        add(pack_sum(checksum(body)))
        add_size(size + 4)
        seq += 1
    return pieces, Run(head.first_seq, ts, sizes, payloads, tagged)


def encode_plain(
    records: Sequence[NewRecord], head: WriteHeader, payloads: array[int], *, more: bool
) -> tuple[list[bytes], Run]:
    """`encode_appends` for records that are data alone: the same bytes, with all but the seq prepared once a length."""
    topic_id, first_seq, ts, durable, node = head
    flags = MORE | (DURABLE if durable else 0) | (2 if node else 0)
    join = b"".join
    begin = _BEGIN.pack(1, flags, topic_id)
    opening, closing = b'{"data":', b"}"
    overhead = len(opening) + len(closing)
    middles = {size: _MIDDLE.pack(ts, len(node), 0, size + overhead) + node + opening for size in set(payloads)}
    bodies = [
        join((begin, seq.to_bytes(8, "little"), middles[size], record.data, closing))
        for seq, size, record in zip(range(first_seq, first_seq + len(records)), payloads, records, strict=True)
    ]
    if not more:
        bodies[-1] = _BEGIN.pack(1, flags & ~MORE, topic_id) + bodies[-1][_BEGIN.size :]
    fixed = OVERHEAD + len(node) + overhead
    sizes = array("I", [size + fixed for size in payloads])
    lengths = {size + fixed - 12: LENGTH.pack(size + fixed - 4) for size in middles}
    pieces = [piece for body in bodies for piece in (lengths[len(body)], body, checksum_bytes(body)[::-1])]
    return pieces, Run(first_seq, ts, sizes, payloads, [])


def assemble(
    pieces: list[bytes],
    run: Run,
    head: WriteHeader,
    *,
    before: Sequence[Control] = (),
    after: Sequence[Control] = (),
    key: str | None = None,
    hash: bytes | None = None,
) -> EncodedUnit:
    """One write as one batch: Batch, `before`, the Appends, `after`. A single keyless Append stands alone."""
    appends = b"".join(pieces)
    frames = len(before) + len(run.sizes) + len(after)
    if frames == 1 and key is None:
        return EncodedUnit(Unit(None, [RunStep(head.topic_id, run, 0)]), appends, 1)
    lead = b"".join([_control(each, head, more=True) for each in before])
    trail = b"".join([_control(each, head, more=index < len(after) - 1) for index, each in enumerate(after)])
    size = len(lead) + len(appends) + len(trail)
    batch = Batch(frames=frames, body_bytes=size, first_seq=head.first_seq, key=key, hash=hash)
    opening = _control(batch, head, more=True)
    steps: list[Step] = [_step(each, head) for each in before]
    steps.append(RunStep(head.topic_id, run, len(opening) + len(lead)))
    steps += [_step(each, head) for each in after]
    return EncodedUnit(Unit(batch, steps), b"".join((opening, lead, appends, trail)), frames + 1)


def encode_controls(values: Sequence[Control], topic_id: int, ts: int, *, durable: bool = True) -> EncodedUnit:
    """Control frames alone: one stands by itself, several are an atomic batch."""
    head = WriteHeader(topic_id, 0, ts, durable, b"")
    frames = [_control(each, head, more=index < len(values) - 1) for index, each in enumerate(values)]
    unit = Unit(None, [_step(each, head) for each in values])
    if len(values) == 1:
        return EncodedUnit(unit, frames[0], 1)
    following = b"".join(frames)
    batch = Batch(frames=len(frames), body_bytes=len(following))
    return EncodedUnit(Unit(batch, unit.steps), _control(batch, head, more=True) + following, len(frames) + 1)


# Written with the durable flag whatever the log's class: topics and their settings are always synced before the ack.
_ALWAYS_DURABLE = frozenset(
    {
        FrameType.TOPIC_CREATE,
        FrameType.TOPIC_DELETE,
        FrameType.ROUTER_CREATE,
        FrameType.ROUTER_DELETE,
        FrameType.CONFIG_UPDATE,
    }
)


def _control(value: Control, head: WriteHeader, *, more: bool) -> bytes:
    type_ = TYPE_OF[type(value)]
    durable = head.durable or type_ in _ALWAYS_DURABLE
    flags = (MORE if more else 0) | (DURABLE if durable else 0)
    return encode(type_, flags, head.topic_id, 0, head.ts, data=encode_control(value))


def _step(value: Control, head: WriteHeader) -> ControlStep:
    return ControlStep(TYPE_OF[type(value)], head.topic_id, head.ts, value)
