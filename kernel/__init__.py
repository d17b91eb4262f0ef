"""The only interface to the bytes of frames: all code that creates, checks, copies or shows frames uses it.

It uses compiled code, or `kernel.plain` if that was not built: the same functions in Python, row by row, with
byte-identical results (tests/kernel runs one suite over both). TOPICS_KERNEL=python selects the Python version.

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
    json_members, json_elements  JSON text -> where members of objects and elements of arrays are
    json_texts, json_integers, json_decimals, json_moments   these pieces -> columns of values
    read_kafka, write_kafka      record batches of Kafka
    kafka_values                 stored bodies -> values of Kafka records

Source: docs/architecture.md#the-kernel, docs/reference/format.md#frames.
"""

from __future__ import annotations

import enum
import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple, TypeAlias

from kernel import plain
from kernel.rows import FLAGS_AT, ROW, ROW_SIZE

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
    "JsonColumn",
    "JsonElements",
    "JsonKind",
    "JsonMembers",
    "KafkaRecords",
    "KafkaValues",
    "Kind",
    "Measured",
    "Moment",
    "Part",
    "RowShape",
    "Scan",
    "Tags",
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
    "json_decimals",
    "json_elements",
    "json_integers",
    "json_members",
    "json_moments",
    "json_texts",
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
        return plain, False, f"{_ENVIRONMENT}=python selects the Python version"
    try:
        compiled: Any = import_module("._compiled", __package__)
    except ImportError as error:
        return plain, False, f"the compiled kernel cannot be loaded: {error}"
    if getattr(compiled, "INTERFACE", 0) != plain.INTERFACE:
        return plain, False, "the compiled kernel has another version: reinstall it"
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
    #: Raw bytes, to be wrapped as a MessagePack map. They cannot have meta or deliver_at.
    BINARY = 1
    #: A complete JSON body.
    STORED_JSON = 2
    #: A complete MessagePack body.
    STORED_BINARY = 3


class Header(NamedTuple):
    """The header fields that all frames of one call share.

    `flags`: DURABLE or 0, and the hop count << 5. The kernel sets has_tag, has_node, more and binary. `node`: the node
    of records that have none of their own.
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
    """Encode these records as Append frames. Returns the frames, adjacent in one buffer, and the size of each in bytes
    (u32).

    The records get consecutive seqs from `header.first_seq` on. A column is None if no record has that field. A value
    is None (or empty, except for a meta) if its record lacks the field. `tags` may be one buffer: the tag of all
    records. `deliver_ats`: ms since the epoch; 0 is written, None is not. `body`: the Body of all records; `bodies`:
    instead, one byte for each record.

    `more`: a frame of the same batch follows the last one. `apart`: no frame says that another frame of its batch
    follows, and `more` is ignored. `around`: called once with the total size of the frames in bytes, before they are
    made. It returns the bytes to put before and after them in the result, for a Batch frame that contains the size.

    Raises ValueError if columns differ in length, a node or tag has more than 65,535 bytes, a frame has more than 4
    GiB, a seq does not fit into 64 bits, or a meta or deliver_at is given for a body other than JSON. Raises TypeError
    for an argument that is not a buffer.
    """
    frames, sizes = _code.encode_appends(
        datas, metas, tags, nodes, deliver_ats, bodies, body, *header, more, apart, around
    )
    return frames, array("I", sizes)


def encode_copies(
    buffer: Buffer, columns: Columns, header: Header, *, more: bool = False, apart: bool = False
) -> tuple[bytes, array[int]]:
    """Encode the routed copies of these frames as Append frames, with seqs from `header.first_seq` on. Returns the
    frames and their sizes.

    `buffer`: the buffer in which the frames of `columns` were found, of the log or of a segment. Node, tag and body are
    copied byte for byte, and so are the flags has_tag, has_node and binary. All other flags come from `header`; its
    node is ignored. `more` and `apart`: see `encode_appends`. Checksums of the originals are not verified again.

    Raises ValueError if a row of `columns` lies outside the buffer, or a seq does not fit into 64 bits.
    """
    frames, sizes = _code.encode_copies(
        buffer, columns.rows, header.topic_id, header.first_seq, header.ts, header.flags, more, apart
    )
    return frames, array("I", sizes)


# -- columns -----------------------------------------------------------------------------------------------------------

#: Flags of a frame that has a tag or a node.
_LABELS = bytes(flags for flags in range(256) if flags & 0b11)


class Columns:
    """Verified frames, in the order of their buffer. The buffer itself is not kept.

    Immutable. Each use of a property creates a new array (about 10 ns per frame): read it once and keep it.
    """

    __slots__ = ("count", "rows")

    def __init__(self, rows: bytes = b"") -> None:
        """`rows`: as above. The caller guarantees that they are correct."""
        self.rows = rows
        #: The number of frames, like `len`.
        self.count = len(rows) // ROW_SIZE

    def __len__(self) -> int:
        return self.count

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Columns) and self.rows == other.rows

    def __hash__(self) -> int:
        return hash(self.rows)

    def __repr__(self) -> str:
        return f"<{len(self)} frames>"

    def __iter__(self) -> Iterator[tuple[int, int, int, int, int, int, int, int, int, int, int, int]]:
        """Each frame as `row` returns it."""
        return ROW.iter_unpack(self.rows)

    def row(self, index: int) -> tuple[int, int, int, int, int, int, int, int, int, int, int, int]:
        """(offset, topic_id, seq, ts, size, data_len, node_len, tag_len, type, flags, delete_byte, header_len) of one
        frame. Raises IndexError."""
        return ROW.unpack_from(self.rows, range(self.count)[index] * ROW_SIZE)

    def between(self, begin: int, end: int) -> Columns:
        """The frames with numbers [begin, end), counted from 0."""
        return self if begin <= 0 and end >= self.count else Columns(self.rows[begin * ROW_SIZE : end * ROW_SIZE])

    def with_seqs(self, seqs: array[int]) -> Columns:
        """The same frames with these seqs (u64, one for each)."""
        rows = array("Q", self.rows)
        rows[2 :: ROW_SIZE // 8] = seqs
        return Columns(rows.tobytes())

    def take(self, numbers: Iterable[int]) -> Columns:
        """The frames with these numbers, in this order."""
        rows = self.rows
        return Columns(b"".join([rows[number * ROW_SIZE : (number + 1) * ROW_SIZE] for number in numbers]))

    @property
    def offsets(self) -> array[int]:
        """Where each frame begins in the buffer; u64."""
        return self._u64(0)

    @property
    def topic_ids(self) -> array[int]:
        """u64."""
        return self._u64(1)

    @property
    def seqs(self) -> array[int]:
        """u64; 0 of frames other than Append."""
        return self._u64(2)

    @property
    def stamps(self) -> array[int]:
        """Times, ms since the epoch; u64."""
        return self._u64(3)

    @property
    def sizes(self) -> array[int]:
        """Bytes of each whole frame; u32."""
        return self._u32(8)

    @property
    def data_lens(self) -> array[int]:
        """Bytes of each body; u32."""
        return self._u32(9)

    @property
    def tag_lens(self) -> array[int]:
        """u16."""
        return self._u16(21)

    @property
    def types(self) -> bytes:
        """FrameType, a byte each."""
        return self.rows[44::ROW_SIZE]

    @property
    def flags(self) -> bytes:
        """FrameFlag bits 0-4 and the hop count in bits 5-7, a byte each."""
        return self.rows[FLAGS_AT::ROW_SIZE]

    @property
    def delete_bytes(self) -> bytes:
        """0x00 live, 0xD5 deleted, a byte each; of frames of the log always 0."""
        return self.rows[46::ROW_SIZE]

    @property
    def body_bytes(self) -> int:
        """Bytes of all bodies."""
        rows, count = self.rows, self.count
        if not count:
            return 0
        begin, _, first_seq, _, size, data_len, _, _, _, _, _, _ = ROW.unpack_from(rows)
        if count == 1:
            return data_len
        last, _, last_seq, _, last_size, *_ = ROW.unpack_from(rows, len(rows) - ROW_SIZE)
        if last_seq - first_seq == count - 1 and len(rows[FLAGS_AT::ROW_SIZE].translate(None, _LABELS)) == count:
            return last + last_size - begin - count * (size - data_len)  # adjacent frames without nodes and tags
        return sum(self.data_lens)

    @property
    def end(self) -> int:
        """Where in the buffer the last frame ends; 0 if there is none."""
        if not self.rows:
            return 0
        row = ROW.unpack_from(self.rows, len(self.rows) - ROW_SIZE)
        return row[0] + row[4]

    def _u64(self, index: int) -> array[int]:
        return _column("Q", memoryview(self.rows).cast("Q")[index :: ROW_SIZE // 8])

    def _u32(self, index: int) -> array[int]:
        return _column("I", memoryview(self.rows).cast("I")[index :: ROW_SIZE // 4])

    def _u16(self, index: int) -> array[int]:
        return _column("H", memoryview(self.rows).cast("H")[index :: ROW_SIZE // 2])


def _column(typecode: str, view: memoryview[int]) -> array[int]:
    column: array[int] = array(typecode)  # pyright: ignore
    column.frombytes(view.tobytes())
    return column


# -- verifying ---------------------------------------------------------------------------------------------------------


class Kind(enum.IntEnum):
    """Which frames a buffer holds."""

    LOG = 0
    SEGMENT = 1


class Scan(NamedTuple):
    """The result of `scan`: the verified frames, and where and why the scan ended.

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


#: The reasons by the number that the code returns.
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
    """Return the verified frames between `start` and `stop` (None: the end of the buffer), up to the first that is not
    sound.

    `max_frames`: at most this many frames (0: no limit). `max_bytes`: at most this many bytes of bodies in all, but at
    least one frame (0: no limit). `topic_id`: accept only frames of this topic. `first_seq`: the first frame must be an
    Append with this seq, the next one an Append with the next seq, and so on. `verify`: False skips the checksums, for
    bytes that never left memory. Lengths are always checked.

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


# -- groups ------------------------------------------------------------------------------------------------------------


class GroupKind(enum.IntEnum):
    """The kind of a group of consecutive frames of the log."""

    #: One frame that is not an Append.
    CONTROL = 0
    #: Appends of one batch: one topic, one ts, consecutive seqs, and the flag `more` on each but the last.
    BATCHED = 1
    #: Complete units of data, of any topics; see `by_topic`. A unit is an Append outside a batch, or a Batch frame with
    #: no fields but `frames`, `bytes`, `first_seq`, `key`, `hash` and `producer`, in this order, and the Appends of its
    #: batch.
    DATA = 2


def groups(buffer: Buffer, columns: Columns, inside: bool = False) -> list[tuple[int, int, int]]:
    """Group consecutive frames of the log that belong together. Returns (first, end, kind): rows [first, end) and a
    GroupKind.

    Groups are as long as possible, and cover all rows in order. `inside`: the frame before the first one said that its
    batch continues. The flag `more` of a group's last frame says whether its batch continues after the group. An Append
    that opens a batch without a Batch frame is in a group BATCHED. Raises ValueError if a row lies outside the buffer.
    """
    return _code.groups(buffer, columns.rows, inside)


class Tags(NamedTuple):
    """Tags of records: the seqs (u64) of records with a tag, the length of each tag (u16), and all tags, joined."""

    seqs: array[int]
    lens: array[int]
    text: bytes


class Batches(NamedTuple):
    """Complete units of one topic with consecutive seqs. For each unit: its first seq (`seqs`), its time (`stamps`),
    the place of its first Append (`lsns`, u64), and how many bytes of the unit are before that (`leads`, u32). For each
    record: the bytes of its frame (`sizes`) and of its payload (`payloads`, u32).

    For each unit with an idempotency key (`keyed`) or a producer (`sent`), in order: its first seq, its number of
    records and its time; then the key and the hash (16 bytes or none), or the producer's id, epoch and base sequence.
    """

    topic_id: int
    seqs: array[int]
    stamps: array[int]
    lsns: array[int]
    leads: array[int]
    sizes: array[int]
    payloads: array[int]
    tags: Tags
    keyed: list[tuple[int, int, int, bytes, bytes]]
    sent: list[tuple[int, int, int, int, int, int]]

    @property
    def first_seq(self) -> int:
        return self.seqs[0]

    @property
    def last_seq(self) -> int:
        return self.seqs[0] + len(self.sizes) - 1

    def behind(self, seq: int) -> Batches:
        """From the batch with the record `seq` + 1 on, which must be here."""
        entry = bisect_right(self.seqs, seq + 1) - 1
        first = self.seqs[entry]
        record, tag = first - self.seqs[0], bisect_left(self.tags.seqs, first)
        seqs, lens, text = self.tags
        return self._replace(
            seqs=self.seqs[entry:],
            stamps=self.stamps[entry:],
            lsns=self.lsns[entry:],
            leads=self.leads[entry:],
            sizes=self.sizes[record:],
            payloads=self.payloads[record:],
            tags=Tags(seqs[tag:], lens[tag:], text[sum(lens[:tag]) :]),
            keyed=[each for each in self.keyed if each[0] >= first],
            sent=[each for each in self.sent if each[0] >= first],
        )


def by_topic(buffer: Buffer, columns: Columns, payloads: array[int], base: int) -> list[Batches]:
    """Split the units of a group DATA by topic, and the units of a topic into lists of consecutive seqs.

    Lists are in the order of their first frames, and keep the order of their frames. A frame extends the latest list of
    its topic, or begins a new list. `payloads`: the measured payload of every row. `base` is added to offsets. Raises
    ValueError if there are more or fewer payloads than rows, or a row lies outside the buffer.
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
            Tags(array("Q", tagged), array("H", lens), tags),
            keyed,
            sent,
        )
        for topic_id, seqs, stamps, lsns, leads, sizes, of_records, tagged, lens, tags, keyed, sent in _code.by_topic(
            buffer, columns.rows, payloads, base
        )
    ]


class Measured(NamedTuple):
    """What Append frames contain. `payloads` (u32): the bytes of data and meta as sent, and all bytes that `ct` and `h`
    add to an object. `delayed`: (row, ms since the epoch) of jobs that must not be delivered before that time. `bad`:
    the first row whose body is not a record, or -1; its payload is a guess."""

    payloads: array[int]
    delayed: list[tuple[int, int]]
    bad: int


def measure(buffer: Buffer, columns: Columns) -> Measured:
    """Measure the payload bytes and delays of these frames. A frame that is not an Append counts 0. Raises ValueError
    if a row lies outside the buffer."""
    payloads, delayed, bad = _code.measure(buffer, columns.rows)
    return Measured(array("I", payloads), delayed, bad)


class Part(enum.IntEnum):
    """A part of a frame."""

    NODE = 0
    TAG = 1
    BODY = 2
    #: The data in the body as it was appended: raw bytes or JSON text.
    DATA = 3


def cut(buffer: Buffer, columns: Columns, part: int) -> list[bytes]:
    """Return this part of every frame, b"" for a frame without it. Raises ValueError if a row lies outside the buffer,
    or, when the data is asked for, if a body is not a record."""
    return _code.cut(buffer, columns.rows, part)


def parts(buffer: Buffer, columns: Columns) -> tuple[list[bytes], list[bytes], list[bytes]]:
    """Return node, tag and body of every frame, as `cut` does."""
    node, tag, body = (_code.cut(buffer, columns.rows, part) for part in (Part.NODE, Part.TAG, Part.BODY))
    return node, tag, body


# -- segments ----------------------------------------------------------------------------------------------------------


class Index(NamedTuple):
    """The entries of an .idx, by field: u32, u32, u64, and one byte each. `len` is 0 if no record has that seq.
    `damaged`: the first entry that is incomplete or fails its check, or -1; its fields are as read."""

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
    """Convert these Append frames of the log for a segment: the bytes for its .data, and the entries for its .idx.

    `data_offset`: where in .data they go. `next_seq`: the seq of the first entry; None: that of the first frame.
    `last_ts`: the ts of the entry before. Seqs without a frame become entries without a record. So do frames whose byte
    of `dead` is not 0 (None: all are live); these are left out of .data. .len and .tag come from `measure` and `cut`.

    Checksums are copied: what `scan` has verified is not hashed again. Raises ValueError if a row lies outside the
    buffer or is not an Append of the log, if seqs do not ascend from `next_seq` or leave out more than 2**24 seqs in
    all, or if .data would end beyond 4 GiB - 1.
    """
    first = next_seq if next_seq is not None else (columns.row(0)[2] if len(columns) else 0)
    return _code.to_segment(buffer, columns.rows, data_offset, first, last_ts, dead)


def build_index(
    lens: Sequence[int], stamps: Sequence[int], flags: Buffer, *, data_offset: int = 0, last_ts: int = 0
) -> bytes:
    """Build the entries of an .idx for frames that are adjacent in .data from `data_offset` on, one frame for each seq.

    `lens`: 0 for a seq without a record; its entry gets the ts of the entry before (`last_ts`) and no flags. Raises
    ValueError if columns differ in length or .data would end beyond 4 GiB - 1.
    """
    return _code.build_index(_as_array("I", lens), _as_array("Q", stamps), flags, data_offset, last_ts)


def parse_index(buffer: Buffer) -> Index:
    """Read and check the entries of an .idx. An entry that is cut short at the end is `damaged`, and not in the
    columns."""
    offsets, lens, stamps, flags, damaged = _code.parse_index(buffer)
    return Index(array("I", offsets), array("I", lens), array("Q", stamps), flags, damaged)


# -- showing -----------------------------------------------------------------------------------------------------------


class RowShape(enum.IntFlag):
    """The parts of a record to show: its tag, its meta and data, and its stored body if that differs from the shown
    one."""

    TAGS = 1
    META = 2
    DATA = 4
    STORED = 8


def render_rows(buffer: Buffer, columns: Columns, shape: int = RowShape.META | RowShape.DATA) -> bytes:
    """Render the records of these Append frames as JSON objects, separated by commas: the rows of a read.

    {"$seq":…,"$ts":…,"$node":…,"$tag":…,"$stored":…,"data":…,"meta":…}. Data and meta are the bytes that were appended;
    raw bytes become {"$base64":…}. deliver_at, ct and h are left out. Raises ValueError if a body that has to be parsed
    is not a record, a node or tag is not UTF-8, or a row lies outside the buffer.
    """
    return _code.render_rows(buffer, columns.rows, shape)


def render_records(
    records: Sequence[tuple[int, int, bytes, bytes, bytes]], shape: int = RowShape.META | RowShape.DATA
) -> bytes:
    """`render_rows` for records given as (seq, ts, node, tag, stored body), like StoredRecord. Raises like
    `render_rows`."""
    return _code.render_records(records, shape)


def render_jobs(
    records: Sequence[tuple[int, int, bytes, bytes, bytes]],
    lease_ids: Sequence[int],
    deadlines: Sequence[int] | int,
    deliveries: Sequence[int] | int,
) -> bytes:
    """Render jobs as JSON objects, separated by commas: the rows of a claim.

    {"$seq":…,"lease_id":"lease_…","deadline":…,"$ts":…,"$node":…,"$tag":…,"deliveries":…,"data":…,"meta":…}. `records`:
    see `render_records`. A number instead of a column applies to all jobs. Raises ValueError like `render_rows`, and if
    columns differ in length.
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
    """`depth`: how deeply arrays and objects are nested. `deep_at`: the first byte at which the depth exceeds the
    limit, or -1. `invalid_at`: the first byte that does not begin a UTF-8 character, or -1. If there is one, the depth
    is that of the text before it."""

    depth: int
    deep_at: int
    invalid_at: int


def check_json(body: Buffer, max_depth: int = 256) -> JsonCheck:
    """Find how deeply JSON text is nested, and whether it is UTF-8. Brackets within strings do not count.

    The grammar is not checked. For text that is not JSON, the depth means little.
    """
    return JsonCheck._make(_code.check_json(body, max_depth))


class JsonKind(enum.IntEnum):
    """What a piece of JSON text is. NONE: nothing is there, or it is not JSON."""

    NONE = 0
    NULL = 1
    FALSE = 2
    TRUE = 3
    #: A number without a fraction and an exponent.
    INTEGER = 4
    NUMBER = 5
    #: A string without escapes. The piece is what the quotes enclose.
    TEXT = 6
    ESCAPED = 7
    ARRAY = 8
    OBJECT = 9


class JsonColumn(NamedTuple):
    """Pieces of a buffer, one a row: from `starts` to `ends` (u64 each), and their kinds (a byte each)."""

    starts: Buffer
    ends: Buffer
    kinds: Buffer


class JsonMembers(NamedTuple):
    """`kinds`: of each row's value. `members`: a column for each name."""

    kinds: bytes
    members: list[JsonColumn]


class JsonElements(NamedTuple):
    """`counts`: of each row's elements (u64). `elements`: those of all rows. `names`: of members of objects, and
    nothing for elements of arrays."""

    counts: bytes
    elements: JsonColumn
    names: JsonColumn


def json_members(
    buffer: Buffer, starts: Buffer, ends: Buffer, names: Sequence[bytes], *, sure: bool = False
) -> JsonMembers:
    """Find these members in the JSON text of each row; rows are from `starts` to `ends` (u64) of the buffer.

    A row that is not JSON by RFC 8259, not UTF-8, or nested more than 1024 deep, is of kind NONE. Nothing is found in
    a row that is not an object. If a name is there twice, the last member counts.

    `sure`: each row begins with JSON that was checked before, so what is not requested is skipped without a check, and
    so are the parts of requested objects and arrays. A row with something behind its JSON is still of kind NONE. Other
    rows may be of any kind.

    Raises ValueError if a row lies outside the buffer, or a name has more than 1024 bytes. Names must differ.
    """
    kinds, *columns = _code.json_members(buffer, starts, ends, names, sure)
    count = len(kinds)
    return JsonMembers(kinds, [JsonColumn._make(_parts(columns, at * count, count)) for at in range(len(names))])


def _parts(columns: Sequence[bytes], begin: int, count: int) -> Iterator[memoryview]:
    for column, width in zip(columns, (8, 8, 1), strict=True):
        yield memoryview(column)[begin * width : (begin + count) * width]


def json_elements(buffer: Buffer, starts: Buffer, ends: Buffer) -> JsonElements:
    """Find all elements of the array, or all members of the object, in each row. A row that is neither, or is not sound
    JSON, has none. Raises ValueError if a row lies outside the buffer."""
    counts, *columns = _code.json_elements(buffer, starts, ends)
    return JsonElements(counts, JsonColumn(*columns[:3]), JsonColumn(*columns[3:]))


def json_texts(buffer: Buffer, column: JsonColumn) -> tuple[bytes, bytes, bytes]:
    """Return (offsets, text, fits): the strings without their escapes, and all other values as they are written.

    `offsets`: i32, one more than rows, into `text`. NONE and NULL have no text. `fits`: 0 of a string with half of a
    surrogate pair, which has no text. Raises ValueError if a row lies outside the buffer, or for more than 2 GiB.
    """
    return _code.json_texts(buffer, *column)


def json_integers(buffer: Buffer, column: JsonColumn, bits: int) -> tuple[bytes, bytes]:
    """Return (numbers, fits): i64, and 1 for each INTEGER of at most `bits` (7 to 63) bits and a sign. Others are 0.

    Raises ValueError if a row lies outside the buffer.
    """
    if not 7 <= bits <= 63:
        raise ValueError(f"an integer has 7 to 63 bits, not {bits}")
    return _code.json_integers(buffer, *column, bits)


def json_decimals(buffer: Buffer, column: JsonColumn, precision: int, scale: int) -> tuple[bytes, bytes]:
    """Return (numbers, fits): the numbers times 10**scale, rounded half up, in 16 bytes each (two's complement), and 1
    for each number with at most `precision` (1 to 38) digits then. A TEXT that is a number counts as one. Exact: no
    number becomes a float. Raises ValueError if a row lies outside the buffer.
    """
    if not 0 <= scale <= precision <= 38 or precision < 1:
        raise ValueError(
            f"a decimal has 1 to 38 digits, of them 0 or more behind the point, not ({precision}, {scale})"
        )
    return _code.json_decimals(buffer, *column, precision, scale)


class Moment(enum.IntEnum):
    """What a text says about a time. NONE: it is not one."""

    NONE = 0
    DATE = 1
    #: A date and a time without a zone.
    LOCAL = 2
    ZONED = 3


def json_moments(buffer: Buffer, column: JsonColumn) -> tuple[bytes, bytes]:
    """Return (microseconds, moments): i64 since 1970, in UTC unless the text names a zone, and the Moment of each.

    A moment is a TEXT like 2026-01-31, 2026-01-31T10:20, 2026-01-31 10:20:30.123456789Z or 2026-01-31T10:20:30+02:00:
    years 0001 to 9999, no 60th second, and up to 9 digits of a second, of which 6 count. Raises ValueError if a row
    lies outside the buffer.
    """
    return _code.json_moments(buffer, *column)


# -- Kafka -------------------------------------------------------------------------------------------------------------


class KafkaRecords(NamedTuple):
    """The records of a batch by column. `keys` is None if all are null, and `headers` is None if no record has any.
    `time_deltas`: ms after the batch's base_timestamp (i64). `offset_deltas`: i64, as in the records."""

    keys: list[bytes | None] | None
    values: list[bytes | None]
    headers: list[list[tuple[str, bytes | None]]] | None
    time_deltas: array[int]
    offset_deltas: array[int]


def read_kafka(records: Buffer, count: int, *, max_headers: int = 1 << 20) -> KafkaRecords:
    """Parse `count` records from these bytes, which follow the header of a batch, uncompressed.

    Raises ValueError with the reason if the bytes are not exactly that many sound records, and OverflowError if they
    have more than `max_headers` headers in all. Memory is taken only for what the bytes contain.
    """
    keys, values, headers, time_deltas, offset_deltas = _code.read_kafka(records, count, max_headers)
    return KafkaRecords(keys, values, headers, array("q", time_deltas), array("q", offset_deltas))


class KafkaValues(NamedTuple):
    """Values and times (ms, i64) of records as Kafka clients get them. `odd`: the numbers of the records whose value is
    None because their bodies have to be parsed."""

    values: list[bytes | None]
    stamps: array[int]
    odd: list[int]


def kafka_values(bodies: Sequence[bytes], nodes: Sequence[bytes], stamps: Sequence[int]) -> KafkaValues:
    """Return the values of stored bodies that contain only data, or data and a create time. The create time replaces
    the record's time in `stamps`. A body without a create time and with a node is odd: the node becomes a header.

    Raises ValueError if columns differ in length.
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
    """Encode at least one record as a batch of format v2, uncompressed, sealed with its CRC-32C.

    `offset_deltas`: how far each record is after `base_offset`, ascending from 0. `stamps`: ms. The batch has no
    producer id. Raises ValueError if columns differ in length, or there are no records.
    """
    return _code.write_kafka(
        base_offset, _as_array("q", offset_deltas), keys, values, headers, _as_array("q", stamps), leader_epoch
    )


# -- arrays ------------------------------------------------------------------------------------------------------------


#: Up to this count, adding the numbers one by one is as fast as comparing them.
_FEW = 8


def all_equal(numbers: array[int]) -> bool:
    """Whether all numbers are equal, as sizes usually are. Creates no Python number for each."""
    return numbers[:1] * len(numbers) == numbers


def total(numbers: array[int]) -> int:
    """The sum. If all numbers are equal, creates no Python number for each."""
    count = len(numbers)
    return numbers[0] * count if count > _FEW and numbers[:1] * count == numbers else sum(numbers)


def largest(numbers: array[int]) -> int:
    """The largest number. If all are equal, creates no Python number for each. Raises ValueError for no numbers."""
    return numbers[0] if len(numbers) > _FEW and all_equal(numbers) else max(numbers)


def _as_array(typecode: str, column: Sequence[int]) -> array[int]:
    return column if isinstance(column, array) and column.typecode == typecode else array(typecode, column)  # pyright: ignore
