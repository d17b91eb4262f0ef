"""The only interface to the bytes of frames: all code that creates, checks, copies or shows frames uses it.

It uses compiled code or, if that was not built, `kernel.plain`: the same functions in Python, row by row, with the same
bytes as results (tests/kernel runs one suite over both). TOPICS_KERNEL=python selects the Python version.

Pure: bytes go in, bytes and columns come out. Nothing here touches a disk or a clock, and nothing imports from storage.
A buffer is any object that exports contiguous bytes; it must not change during a call. Work on large buffers releases
the interpreter's lock, so calls from several threads run in parallel.

    checksum, crc32c             the two checksums
    encode_appends               records -> Append frames of the log
    encode_copies                frames -> the frames of their routed copies
    scan                         bytes -> verified frames, as `Columns`
    groups, by_topic             columns -> groups of frames in the log, and units by topic
    measure, cut, parts          columns -> payload sizes and delays; nodes, tags, bodies, data
    to_segment                   frames of the log -> .data and .idx
    build_index, parse_index     columns <-> .idx
    render_rows, render_records  frames, records -> JSON
    render_jobs, render_job_rows jobs -> JSON
    check_json                   text -> nesting and UTF-8
    read_kafka, write_kafka      record batches of Kafka
    kafka_values                 stored bodies -> values of Kafka records

Source: docs/architecture.md#the-kernel, docs/reference/format.md#frames.
"""

from __future__ import annotations

import enum
import os
from array import array
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple, TypeAlias

from kernel import plain
from kernel.columns import Columns, all_equal, largest, total

__all__ = [
    "COMPILED",
    "REASON",
    "Batches",
    "Body",
    "Buffer",
    "Columns",
    "GroupKind",
    "Header",
    "Index",
    "JsonCheck",
    "KafkaRecords",
    "KafkaValues",
    "Kind",
    "Measured",
    "Part",
    "RowShape",
    "Scan",
    "all_equal",
    "build_index",
    "by_topic",
    "check_json",
    "checksum",
    "crc32c",
    "cut",
    "encode_appends",
    "encode_copies",
    "groups",
    "kafka_values",
    "largest",
    "measure",
    "parse_index",
    "parts",
    "read_kafka",
    "render_job_rows",
    "render_jobs",
    "render_records",
    "render_rows",
    "scan",
    "to_segment",
    "total",
    "write_kafka",
]

Buffer: TypeAlias = bytes | bytearray | memoryview

_ENVIRONMENT: Final = "TOPICS_KERNEL"


def _choose() -> tuple[Any, bool, str]:
    wanted = os.environ.get(_ENVIRONMENT, "")
    if wanted == "python":
        return plain, False, f"{_ENVIRONMENT}=python asks for the Python twin"
    try:
        compiled: Any = import_module("._compiled", __package__)
    except ImportError as error:
        return plain, False, f"the compiled kernel cannot be loaded: {error}"
    if getattr(compiled, "INTERFACE", 0) != plain.INTERFACE:
        return plain, False, "the compiled kernel is of another version: install it anew"
    return compiled, True, ""


_loaded = _choose()
_code: Any = _loaded[0]
#: Whether the compiled code is in use.
COMPILED: Final[bool] = _loaded[1]
#: Why it is not in use; "" if it is. One line, for the log.
REASON: Final[str] = _loaded[2]


# -- checksums ---------------------------------------------------------------------------------------------------------

#: XXH3-64 with seed 0 of a buffer.
checksum: Callable[[Buffer], int] = _code.checksum
#: CRC-32C (Castagnoli) of a buffer.
crc32c: Callable[[Buffer], int] = _code.crc32c


# -- encoding ----------------------------------------------------------------------------------------------------------


class Body(enum.IntEnum):
    """How the data given for a record becomes the body of its frame. Odd values get the flag `binary`."""

    #: JSON text, to be wrapped: {"data":…,"meta":…,"deliver_at":…}.
    JSON = 0
    #: Raw bytes, to be wrapped as a MessagePack map: neither meta nor deliver_at.
    BINARY = 1
    #: A complete JSON body.
    STORED_JSON = 2
    #: A complete MessagePack body.
    STORED_BINARY = 3


class Header(NamedTuple):
    """The header fields that all frames of one call share.

    `flags`: DURABLE, or 0, and the hop count << 5; has_tag, has_node, more and binary are set here. `node`: of records
    that have none of their own.
    """

    topic_id: int
    first_seq: int
    ts: int
    node: bytes
    flags: int


def encode_appends(
    datas: Sequence[Buffer],
    metas: Sequence[Buffer | None] | None,
    tags: Sequence[Buffer | None] | Buffer | None,
    header: Header,
    *,
    nodes: Sequence[Buffer | None] | None = None,
    deliver_ats: Sequence[int | None] | None = None,
    body: int = Body.JSON,
    bodies: Buffer | None = None,
    more: bool = False,
    apart: bool = False,
    around: Callable[[int], tuple[Buffer, Buffer]] | None = None,
) -> tuple[bytes, array[int]]:
    """The Append frames of these records, adjacent, and the bytes of each frame (u32).

    Records have the seqs from `header.first_seq` on. A column is None where no record has such a thing, and a value
    None (or, but for a meta, empty) where this record has none; `tags` may be one buffer, the tag of all.
    `deliver_ats`: ms since the epoch; 0 is written, None is not. `body`: a Body, of all records; `bodies`: a byte of
    each instead.

    `more`: a frame of the same batch follows the last one. `apart`: no frame says that another one of its batch
    follows (then `more` says nothing). `around`: called once with the bytes of all frames, before they are made; gives
    what is to stand in front of them and behind them in the result (a Batch frame, for which the size is wanted).

    Raises ValueError where columns differ in length, a node or tag has more than 65,535 bytes, a frame more than
    4 GiB, the seqs end beyond u64, or a meta or deliver_at is given for a body other than JSON. TypeError for what is
    no buffer.
    """
    frames, sizes = _code.encode_appends(
        datas, metas, tags, nodes, deliver_ats, bodies, body, *header, more, apart, around
    )
    return frames, array("I", sizes)


def encode_copies(
    buffer: Buffer, columns: Columns, header: Header, *, more: bool = False, apart: bool = False
) -> tuple[bytes, array[int]]:
    """The Append frames of routed copies of these frames, with the seqs from `header.first_seq` on, and their sizes.

    `buffer`: that in which the frames of `columns` were found, of the log or of a segment. Node, tag and body stay the
    same bytes, has_tag, has_node and binary the same flags; all other flags are those of `header` (its node says
    nothing). `more` and `apart`: as of `encode_appends`. Checksums of the originals are not verified again.

    Raises ValueError where a row of `columns` lies outside the buffer, or the seqs end beyond u64.
    """
    frames, sizes = _code.encode_copies(
        buffer, columns.rows, header.topic_id, header.first_seq, header.ts, header.flags, more, apart
    )
    return frames, array("I", sizes)


# -- verifying ---------------------------------------------------------------------------------------------------------


class Kind(enum.IntEnum):
    """Which frames a buffer holds."""

    LOG = 0
    SEGMENT = 1


class Scan(NamedTuple):
    """The result of `scan`: the frames, and where and why they end.

    `end`: offset in the buffer of the first byte that belongs to no frame in `columns`. `reason`:

        ""          the range ends exactly there
        "short"     fewer bytes are left than a frame there would have
        "zero"      its length is 0
        "length"    its length does not fit the lengths in its header (or is more than 4 GiB - 1)
        "checksum"  its checksum is wrong
        "delete"    its delete byte is neither 0x00 nor 0xD5; of a segment only
        "other"     it is valid, but not the requested record
        "full"      max_frames or max_bytes is reached; the frame there was not checked
    """

    columns: Columns
    end: int
    reason: str


#: Reasons by the number that the code returns.
REASONS: Final = ("", "short", "zero", "length", "checksum", "delete", "other", "full")


def scan(
    buffer: Buffer,
    kind: int = Kind.LOG,
    start: int = 0,
    stop: int | None = None,
    *,
    max_frames: int = 0,
    max_bytes: int = 0,
    verify: bool = True,
    topic_id: int | None = None,
    first_seq: int | None = None,
) -> Scan:
    """The verified frames from buffer[start] on, as long as they are sound, up to `stop` (None: the buffer's end).

    `max_frames`: no more than so many (0: any number). `max_bytes`: bodies of no more bytes in all, but at least one
    frame (0: any number). `topic_id`: frames are to be of this topic; `first_seq`: the first is to be an Append of this
    seq, the next one of the next seq, and so on. `verify` False: checksums are known to be right (of bytes that never
    left memory); lengths are checked all the same.

    No byte outside [start, stop) is read, whatever the bytes say. Raises ValueError unless 0 <= start <= stop <=
    len(buffer).
    """
    rows, end, reason = _code.scan(
        buffer,
        kind,
        start,
        len(buffer) if stop is None else stop,
        max_frames,
        max_bytes,
        verify,
        topic_id,
        first_seq,
    )
    return Scan(Columns(rows), end, REASONS[reason])


# -- columns -----------------------------------------------------------------------------------------------------------


class GroupKind(enum.IntEnum):
    """The kind of a group of consecutive frames of the log."""

    #: One frame that is no Append.
    CONTROL = 0
    #: Appends within a batch: one topic, one ts, consecutive seqs, each but the last with the flag `more`. Or one that
    #: stands alone and has a tag.
    BATCHED = 1
    #: Whole units of data alone, of any topics, see `by_topic`: an Append that stands alone, or a Batch frame that says
    #: no more than `frames`, `bytes` and `first_seq`, with the Appends that it says. None of them has a tag.
    DATA = 2


def groups(buffer: Buffer, columns: Columns, inside: bool = False) -> list[tuple[int, int, int]]:
    """Consecutive frames of the log that belong together, as (first, end, kind): rows [first, end), a GroupKind.

    Groups are as long as they can be, and together are all rows in order. `inside`: the frame in front of the first
    one said that its batch goes on. Whether a batch goes on behind a group is said by the flag `more` of its last
    frame. An Append that opens a batch without a Batch frame is in a group BATCHED. Raises ValueError if a row lies
    outside the buffer.
    """
    return _code.groups(buffer, columns.rows, inside)


class Batches(NamedTuple):
    """Whole units of a topic's records, with consecutive seqs. Of each unit: its first `seqs`, its time (`stamps`),
    where its first Append lies (`lsns`; u64), and the bytes of it in front of that (`leads`, u32). Of each record:
    `sizes` of the frames, and `payloads` (u32)."""

    topic_id: int
    seqs: array[int]
    stamps: array[int]
    lsns: array[int]
    leads: array[int]
    sizes: array[int]
    payloads: array[int]


def by_topic(columns: Columns, payloads: array[int], base: int) -> list[Batches]:
    """The units of a group DATA by topic, each list of consecutive seqs on its own.

    Lists are in the order of their first frames, frames of a list in their own. A frame continues the list of its
    topic that was last extended, or begins another. `payloads`: as measured, of every row; `base` is added to offsets.
    Raises ValueError if there are more or fewer of them.
    """
    return [
        Batches(
            topic_id,
            array("Q", seqs),
            array("Q", stamps),
            array("Q", lsns),
            array("I", leads),
            array("I", sizes),
            array("I", of_records),
        )
        for topic_id, seqs, stamps, lsns, leads, sizes, of_records in _code.by_topic(columns.rows, payloads, base)
    ]


class Measured(NamedTuple):
    """What Append frames hold. `payloads` (u32): bytes of data and meta as sent, and of `ct` and `h` with all that they
    add to an object. `delayed`: (row, ms since the epoch) of those not to be handed out as jobs before a time. `bad`:
    the first row whose body is no record, -1 where there is none; its payload is a guess."""

    payloads: array[int]
    delayed: list[tuple[int, int]]
    bad: int


def measure(buffer: Buffer, columns: Columns) -> Measured:
    """The payload bytes and delays of these frames; what is no Append counts 0. Raises ValueError if a row lies outside
    the buffer."""
    payloads, delayed, bad = _code.measure(buffer, columns.rows)
    return Measured(array("I", payloads), delayed, bad)


class Part(enum.IntEnum):
    """A part of a frame."""

    NODE = 0
    TAG = 1
    BODY = 2
    #: The data in the body, as it was appended: raw bytes, or JSON text.
    DATA = 3


def cut(buffer: Buffer, columns: Columns, part: int) -> list[bytes]:
    """This part of every frame, b"" if a frame has none. Raises ValueError if a row lies outside the buffer, or, asked
    for its data, has a body that is no record."""
    return _code.cut(buffer, columns.rows, part)


def parts(buffer: Buffer, columns: Columns) -> tuple[list[bytes], list[bytes], list[bytes]]:
    """Node, tag and body of every frame, as `cut` gives them."""
    node, tag, body = (_code.cut(buffer, columns.rows, part) for part in (Part.NODE, Part.TAG, Part.BODY))
    return node, tag, body


# -- segments ----------------------------------------------------------------------------------------------------------


class Index(NamedTuple):
    """The entries of an .idx, by field: u32, u32, u64, a byte each. `len` 0: no record has that seq. `damaged`: the
    first entry that is cut short or fails its check, -1 where there is none; the fields hold it as it was read."""

    offsets: array[int]
    lens: array[int]
    stamps: array[int]
    flags: bytes
    damaged: int


def to_segment(
    buffer: Buffer,
    columns: Columns,
    *,
    data_offset: int = 0,
    next_seq: int | None = None,
    last_ts: int = 0,
    dead: Buffer | None = None,
) -> tuple[bytes, bytes]:
    """These Append frames of the log as a segment has them: bytes for its .data, and entries for its .idx.

    `data_offset`: where in .data they go; `next_seq`: the seq of the first entry, None: of the first frame; `last_ts`:
    that of the entry in front. Seqs without a frame become entries without a record, and so do frames whose byte of
    `dead` is not 0 (None: all live), which are left out of .data. .len and .tag come from `measure` and `cut`.

    Checksums are copied: what `scan` has verified is not hashed again. Raises ValueError where a row lies outside the
    buffer, is no Append of the log, seqs do not ascend from `next_seq` on or have more than 2**24 holes in all, or
    .data would end beyond 4 GiB - 1.
    """
    first = next_seq if next_seq is not None else (columns.row(0)[2] if len(columns) else 0)
    return _code.to_segment(buffer, columns.rows, data_offset, first, last_ts, dead)


def build_index(
    lens: Sequence[int], stamps: Sequence[int], flags: Buffer, *, data_offset: int = 0, last_ts: int = 0
) -> bytes:
    """Entries of .idx for frames that lie one behind the other in .data from `data_offset` on, a frame a seq.

    `lens`: 0 where a seq has no record; then its entry has the ts of the one in front (`last_ts`) and no flags.
    Raises ValueError where columns differ in length or .data would end beyond 4 GiB - 1.
    """
    return _code.build_index(_as_array("I", lens), _as_array("Q", stamps), flags, data_offset, last_ts)


def parse_index(buffer: Buffer) -> Index:
    """The entries of an .idx, each checked. An entry cut short at the end is `damaged`, and not in the columns."""
    offsets, lens, stamps, flags, damaged = _code.parse_index(buffer)
    return Index(array("I", offsets), array("I", lens), array("Q", stamps), flags, damaged)


# -- showing -----------------------------------------------------------------------------------------------------------


class RowShape(enum.IntFlag):
    """The parts of a record to show: its tag, meta and data, and its stored body if that differs from the shown one."""

    TAGS = 1
    META = 2
    DATA = 4
    STORED = 8


def render_rows(buffer: Buffer, columns: Columns, shape: int = RowShape.META | RowShape.DATA) -> bytes:
    """The records of these Append frames as JSON objects, separated by commas: the rows of a read.

    {"$seq":…,"$ts":…,"$node":…,"$tag":…,"$stored":…,"data":…,"meta":…}. Data and meta go out as the bytes they came
    in, raw bytes as {"$base64":…}; deliver_at, ct and h are left out. Raises ValueError where a body that has to be
    taken apart is no record, a node or tag is not UTF-8, or a row lies outside the buffer.
    """
    return _code.render_rows(buffer, columns.rows, shape)


def render_records(
    records: Sequence[tuple[int, int, bytes, bytes, bytes]], shape: int = RowShape.META | RowShape.DATA
) -> bytes:
    """`render_rows` for records as (seq, ts, node, tag, stored body), like StoredRecord. Raises as `render_rows`."""
    return _code.render_records(records, shape)


def render_jobs(
    records: Sequence[tuple[int, int, bytes, bytes, bytes]],
    lease_ids: Sequence[int],
    deadlines: Sequence[int] | int,
    deliveries: Sequence[int] | int,
) -> bytes:
    """Jobs as JSON objects, separated by commas: the rows of a claim.

    {"$seq":…,"lease_id":"lease_…","deadline":…,"$ts":…,"$node":…,"$tag":…,"deliveries":…,"data":…,"meta":…}.
    `records` as of `render_records`; a number instead of a column is that of all. Raises ValueError as `render_rows`,
    and where columns differ in length.
    """
    return _code.render_jobs(records, *_of_jobs(len(records), lease_ids, deadlines, deliveries))


def render_job_rows(
    buffer: Buffer,
    columns: Columns,
    lease_ids: Sequence[int],
    deadlines: Sequence[int] | int,
    deliveries: Sequence[int] | int,
) -> bytes:
    """`render_jobs` for jobs whose records are these Append frames."""
    return _code.render_job_rows(buffer, columns.rows, *_of_jobs(columns.count, lease_ids, deadlines, deliveries))


def _of_jobs(
    count: int, lease_ids: Sequence[int], deadlines: Sequence[int] | int, deliveries: Sequence[int] | int
) -> tuple[array[int], array[int], array[int]]:
    due = array("Q", [deadlines]) * count if isinstance(deadlines, int) else _as_array("Q", deadlines)
    times = array("Q", [deliveries]) * count if isinstance(deliveries, int) else _as_array("Q", deliveries)
    return array("Q", lease_ids), due, times


# -- JSON --------------------------------------------------------------------------------------------------------------


class JsonCheck(NamedTuple):
    """`depth`: how deep arrays and objects lie within each other; `deep_at`: the byte with which the depth first is
    more than was allowed, -1: never; `invalid_at`: the first byte that begins no UTF-8 character, -1: there is none
    (else the depth is that of what stands in front of it)."""

    depth: int
    deep_at: int
    invalid_at: int


def check_json(body: Buffer, max_depth: int = 256) -> JsonCheck:
    """How deep text that should be JSON is nested, and whether it is UTF-8. Brackets within strings do not count.

    The grammar is not checked: of text that is no JSON the depth says little.
    """
    return JsonCheck._make(_code.check_json(body, max_depth))


# -- Kafka -------------------------------------------------------------------------------------------------------------


class KafkaRecords(NamedTuple):
    """The records of a batch by column. `keys` None: all are null; `headers` None: no record has any. `time_deltas`:
    ms behind the batch's base_timestamp (i64); `offset_deltas`: i64, as the records say them."""

    keys: list[bytes | None] | None
    values: list[bytes | None]
    headers: list[list[tuple[str, bytes | None]]] | None
    time_deltas: array[int]
    offset_deltas: array[int]


def read_kafka(records: Buffer, count: int, *, max_headers: int = 1 << 20) -> KafkaRecords:
    """The `count` records in these bytes, which follow the header of a batch, uncompressed.

    Raises ValueError saying what is wrong where they are not exactly so many sound records; OverflowError where they
    have more than `max_headers` headers in all. Memory is taken only for what is there.
    """
    keys, values, headers, time_deltas, offset_deltas = _code.read_kafka(records, count, max_headers)
    return KafkaRecords(keys, values, headers, array("q", time_deltas), array("q", offset_deltas))


class KafkaValues(NamedTuple):
    """Values and times (ms, i64) of records as Kafka clients get them; `odd`: numbers of those whose value is None,
    because their bodies have to be taken apart."""

    values: list[bytes | None]
    stamps: array[int]
    odd: list[int]


def kafka_values(bodies: Sequence[bytes], nodes: Sequence[bytes], stamps: Sequence[int]) -> KafkaValues:
    """Values of stored bodies that hold nothing else, but perhaps a create time, which then is the time of the record
    instead of that in `stamps`. A body without a create time and with a node is odd: the node becomes a header.

    Raises ValueError where columns differ in length.
    """
    values, found, odd = _code.kafka_values(bodies, nodes, _as_array("q", stamps))
    return KafkaValues(values, array("q", found), odd)


def write_kafka(
    base_offset: int,
    offset_deltas: Sequence[int],
    keys: Sequence[bytes | None] | None,
    values: Sequence[bytes | None],
    headers: Sequence[Sequence[tuple[str, bytes | None]]] | None,
    stamps: Sequence[int],
    leader_epoch: int,
) -> bytes:
    """A record batch of format v2, uncompressed, sealed with its CRC-32C: at least one record.

    `offset_deltas`: how far behind `base_offset` each record is, ascending from 0 on; `stamps`: ms. Without a producer
    id. Raises ValueError where columns differ in length, or there is no record.
    """
    return _code.write_kafka(
        base_offset, _as_array("q", offset_deltas), keys, values, headers, _as_array("q", stamps), leader_epoch
    )


# -- arrays ------------------------------------------------------------------------------------------------------------


def _as_array(typecode: str, column: Sequence[int]) -> array[int]:
    return column if isinstance(column, array) and column.typecode == typecode else array(typecode, column)  # pyright: ignore
