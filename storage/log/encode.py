"""Encodes a write as the frames of one atomic batch. Pure.

`measured` checks the records, in whichever shape the caller has them; `encoded` makes Append frames of them; with their
`Surroundings` they are a batch. `encode_controls` makes a batch of control frames only.

Source: docs/reference/format.md#frames, docs/guides/kafka.md#how-kafka-maps-to-topics.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from struct import Struct
from typing import Any, NamedTuple, TypeAlias

import kernel
from kernel import Body, Header
from storage.format import (
    HOP_SHIFT,
    MORE,
    TYPE_OF,
    Batch,
    Control,
    FrameFlag,
    FrameType,
    digest128,
    encode,
    encode_control,
    is_binary,
    split_body,
)
from storage.log.submission import AppendStep, ControlStep, Step, Unit
from storage.log.validation import check_delays, check_plain, check_records, check_stored, fit, is_plain
from storage.options import Options
from storage.platform import Buffer
from storage.records import (
    AppendedRecords,
    NewRecord,
    PlainBinary,
    PlainRecords,
    RecordColumns,
    StoredBodies,
    columns_of,
)
from storage.state import LookedUp

Contents: TypeAlias = Sequence[NewRecord] | PlainRecords | RecordColumns | StoredBodies
#: Maps `StoredBodies.binary` to kernel.Body.
_STORED = bytes([Body.STORED_JSON] + [Body.STORED_BINARY] * 255)
_length = Struct("<I").pack

DURABLE, BINARY = int(FrameFlag.DURABLE), int(FrameFlag.BINARY)
TAG, NODE = int(FrameFlag.HAS_TAG), int(FrameFlag.HAS_NODE)


# -- records ----------------------------------------------------------------------------------------------------------


def measured(contents: Contents, options: Options, now_ms: Callable[[], int]) -> tuple[Contents, array[int], str]:
    """Returns the records in the form for encoding, their payload sizes, and the delay field used ('' = none).

    Raises InvalidRequest, BatchTooLarge, RecordTooLarge.
    """
    if isinstance(contents, StoredBodies):
        check_stored(contents, options)
        return contents, contents.payloads, ""
    if isinstance(contents, PlainRecords):
        return contents, check_plain(contents, options), ""
    assert not isinstance(contents, RecordColumns)  # made here
    if is_plain(contents):
        contents = PlainRecords([record.data for record in contents])
        return contents, check_plain(contents, options), ""
    columns = columns_of(contents)
    if columns is None or not fit(columns, options):
        check_records(contents, options)  # its error names the record and the reason
    assert columns is not None
    delayed = columns.delays is not None or columns.deliver_ats is not None
    return columns, columns.payloads, check_delays(contents, now_ms()) if delayed else ""


def hash_of(contents: Contents, payloads: array[int], node: str | None) -> bytes:
    """The hash that distinguishes payloads with the same idempotency key: over node, tag, data and meta of each record,
    as sent.

    Of stored bodies, it covers only the data of JSON, and the whole map of raw bytes.
    """
    default = node.encode() if node else b""
    nodes: Sequence[Buffer] | None = None
    tags: Sequence[Buffer] | None = None
    metas: Sequence[Buffer] | None = None
    if isinstance(contents, StoredBodies):
        datas: Sequence[Any] = [body if is_binary(body) else bytes(split_body(body).data) for body in contents.bodies]
        tags = contents.tags
    elif isinstance(contents, PlainRecords):
        datas = contents
    else:
        columns = contents if isinstance(contents, RecordColumns) else columns_of(contents)
        assert columns is not None
        datas, tags = columns.datas, columns.tags
        if columns.nodes is not None:
            nodes = [each or default for each in columns.nodes]
        if columns.metas is not None:
            metas = [b"" if meta is None else meta for meta in columns.metas]  # type: ignore[misc]
    parts = (*_fields(nodes, default), *_fields(tags), *_fields(datas), *_fields(metas))
    return digest128(b"".join(chain.from_iterable(zip(*parts, strict=False))))


def _fields(column: Sequence[Buffer] | None, default: bytes = b"") -> tuple[Iterable[Buffer], Iterable[Buffer]]:
    """The lengths, as they are hashed, and the fields of a column. Without a column, every field is `default`."""
    if column is None:
        return repeat(_length(len(default))), repeat(default)
    return map(_length, map(len, column)), column


def encoded(
    contents: Contents,
    head: Header,
    payloads: array[int],
    *,
    more: bool,
    apart: bool = False,
    around: Surroundings | None = None,
) -> tuple[bytes, AppendedRecords]:
    """The Append frames, with the frames `around` them, and their entry for the index. `more`: a frame of the same
    batch follows the last one.

    `apart`: each frame is a separate unit; only for plain records.
    """
    if isinstance(contents, StoredBodies):
        return encode_stored(contents, head, more=more, around=around)
    if isinstance(contents, PlainRecords):
        body = Body.BINARY if isinstance(contents, PlainBinary) else Body.JSON
        datas: Any = contents
        frames, sizes = kernel.encode_appends(datas, None, None, head, body=body, more=more, apart=apart, around=around)
        return frames, AppendedRecords(head.first_seq, head.ts, sizes, payloads, [])
    columns = contents if isinstance(contents, RecordColumns) else columns_of(contents)
    assert columns is not None
    deliver_ats, metas = columns.due(head.ts), columns.metas
    datas = columns.datas
    frames, sizes = kernel.encode_appends(
        datas,
        metas,  # pyright: ignore[reportArgumentType]
        columns.tags,
        head,
        nodes=columns.nodes,
        deliver_ats=deliver_ats,
        bodies=columns.bodies,
        more=more,
        around=around,
    )
    delayed = [(seq, at) for seq, at in enumerate(deliver_ats, head.first_seq) if at] if deliver_ats else ()
    tagged = _tagged(columns.tags, head.first_seq)
    return frames, AppendedRecords(head.first_seq, head.ts, sizes, payloads, tagged, delayed or ())


def encode_stored(
    stored: StoredBodies,
    head: Header,
    *,
    more: bool,
    hops: int = 0,
    nodes: Sequence[bytes] | None = None,
    delayed: Sequence[tuple[int, int]] = (),
    around: Surroundings | None = None,
) -> tuple[bytes, AppendedRecords]:
    """The Append frames of stored bodies, like `encoded`. `hops`: how often routers have copied the records. `nodes`:
    the node of each record; None: all have the node of `head`. `delayed`: (seq, time) of delayed records."""
    frames, sizes = kernel.encode_appends(
        stored.bodies,
        None,
        stored.tags,
        head._replace(flags=head.flags | hops << HOP_SHIFT) if hops else head,
        nodes=nodes,
        body=Body.STORED_JSON,
        bodies=None if stored.binary is None else stored.binary.translate(_STORED),
        more=more,
        around=around,
    )
    tagged = _tagged(stored.tags, head.first_seq)
    return frames, AppendedRecords(head.first_seq, head.ts, sizes, stored.payloads, tagged, [*delayed] or ())


def _tagged(tags: Sequence[bytes] | None, first_seq: int) -> list[tuple[bytes, int]]:
    return [] if tags is None else [(tag, seq) for seq, tag in enumerate(tags, first_seq) if tag]


# -- batches ----------------------------------------------------------------------------------------------------------


class EncodedUnit(NamedTuple):
    """A unit and its bytes."""

    unit: Unit
    payload: bytes
    frames: int


class Surroundings:
    """The frames of a batch that are not its Append frames: a Batch frame, `before`, and `after` them.

    A call with the total size of the Append frames returns the bytes before them and after them. After it, `unit` is
    the batch with these records.
    """

    __slots__ = (
        "_after",
        "_batch",
        "_before",
        "_hash",
        "_head",
        "_key",
        "_move",
        "_offset",
        "_producer",
        "_steps",
        "frames",
    )

    def __init__(
        self,
        head: Header,
        records: int,
        *,
        before: Sequence[Control] = (),
        after: Sequence[Control] = (),
        key: str | None = None,
        hash: bytes | None = None,
        move: tuple[int, int] | None = None,
        producer: tuple[int, int, int] | None = None,
    ) -> None:
        self._head = head
        self._before = before
        self._after = after
        self._key = key
        self._hash = hash
        self._move = move
        self._producer = producer
        #: Frames of the batch, the Batch frame included.
        self.frames = len(before) + records + len(after) + 1

    def __call__(self, size: int) -> tuple[bytes, bytes]:
        head, last = self._head, len(self._after) - 1
        leading = [_control(each, head, more=True) for each in self._before]
        trailing = [_control(each, head, more=index < last) for index, each in enumerate(self._after)]
        lead, trail = b"".join([frame for frame, _ in leading]), b"".join([frame for frame, _ in trailing])
        self._batch = Batch(
            frames=self.frames - 1,
            body_bytes=len(lead) + size + len(trail),
            first_seq=head.first_seq,
            key=self._key,
            hash=self._hash,
            move=self._move,
            producer=self._producer,
        )
        opening, _ = _control(self._batch, head, more=True)
        self._steps: tuple[list[Step], list[Step]] = [step for _, step in leading], [step for _, step in trailing]
        front = opening + lead
        self._offset = len(front)
        return front, trail

    def unit(self, appended: AppendedRecords) -> Unit:
        leading, trailing = self._steps
        return Unit(self._batch, [*leading, AppendStep(self._head.topic_id, appended, self._offset), *trailing])


def encode_controls(
    values: Sequence[Control | LookedUp], topic_id: int, ts: int, *, durable: bool = True, nodes: Sequence[str] = ()
) -> EncodedUnit:
    """Encode control frames without records; several of them are an atomic batch. `nodes`: those of Lease frames."""
    flags = DURABLE if durable else 0
    if len(values) == 1:
        head = Header(topic_id, 0, ts, nodes[0].encode() if nodes else b"", flags)
        payload, step = _control(values[0], head, more=False)
        return EncodedUnit(Unit(None, [step]), payload, 1)
    heads = [Header(topic_id, 0, ts, node.encode(), flags) for node in nodes or [""] * len(values)]
    last = len(values) - 1
    frames = [_control(each, heads[index], more=index < last) for index, each in enumerate(values)]
    following = b"".join([frame for frame, _ in frames])
    batch = Batch(frames=len(frames), body_bytes=len(following))
    opening, _ = _control(batch, heads[0], more=True)
    return EncodedUnit(Unit(batch, [step for _, step in frames]), opening + following, len(frames) + 1)


# These frames have the durable flag in every durability class: topics, their settings, cursors of consumers and states
# are always synced before the ack.
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


def _control(value: Control | LookedUp, head: Header, *, more: bool) -> tuple[bytes, ControlStep]:
    """The frame of a value, and the step that applies it. The step of a Delete has the records that were looked up."""
    written = value.delete if isinstance(value, LookedUp) else value
    type_ = TYPE_OF[type(written)]
    flags = (MORE if more else 0) | (DURABLE if type_ in _ALWAYS_DURABLE else head.flags & DURABLE)
    node = head.node if type_ == FrameType.LEASE else b""
    frame = encode(type_, flags, head.topic_id, 0, head.ts, node, data=encode_control(written))
    return frame, ControlStep(type_, head.topic_id, head.ts, value, node.decode())
