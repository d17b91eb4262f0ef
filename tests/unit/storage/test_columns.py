"""Reads by columns return the same records as reads frame by frame, and none of a damaged frame."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import TopicConfig
from storage.errors import RecordCorrupt
from storage.format import idx_entry, segment_frame, wal_frame
from storage.format.wal_frame import FrameType
from storage.reads import scan as scan_module
from storage.reads.scan import Piece, Scan
from storage.records.frame_records import FrameRecords, parts_of
from storage.records.values import ReadQuery, StoredRecord, TagMatch
from storage.segments.names import SegmentId
from storage.segments.reader import SegmentSlice
from storage.state.catalog import Topic
from storage.state.log import Log
from storage.state.tail import BatchSlice
from storage.state.usage import Usage
from tests.support.scan_model import ScanModel

TOPIC_ID, FIRST, TS, IN_FRONT = 0x0102030405060708, (1 << 40) + 250, 1_700_000_000_000, 13
NOW = TS + 1000
PLAIN = "plain"


class Frames(NamedTuple):
    """Records of one batch, in the form of the log and of a segment, with other bytes before and after."""

    records: list[StoredRecord]
    sizes: array[int]
    log: bytes
    segment: bytes
    entries: idx_entry.Entries

    @property
    def stamps(self) -> list[int]:
        return [record.ts for record in self.records]


def framed(bodies: Sequence[bytes], *, odd: dict[int, tuple[bytes, bytes]] | None = None, step_ms: int = 0) -> Frames:
    """`odd`: node and tag of a few of them. `step_ms`: how far apart their times are."""
    records = [
        StoredRecord(FIRST + index, TS + step_ms * index, *(odd or {}).get(index, (b"", b"")), body)
        for index, body in enumerate(bodies)
    ]
    frames = [wal_frame.encode(FrameType.APPEND, 0, TOPIC_ID, *record) for record in records]
    sizes = array("Q", map(len, frames))
    moved = [segment_frame.from_wal(frame, 0, len(frame)) for frame in frames]
    entries: list[idx_entry.Entry] = []
    at = IN_FRONT
    for record, size in zip(records, sizes, strict=True):
        entries.append(idx_entry.Entry(at, size, record.ts, (record.tag != b"") | (record.node != b"") << 1))
        at += size
    around = bytes(range(1, IN_FRONT + 1))
    return Frames(
        records,
        sizes,
        around + b"".join(frames) + around,
        around + b"".join(moved) + around,
        idx_entry.Entries.of(entries),
    )


def bodies_of(count: int, kind: str, seed: int) -> list[bytes]:
    random = Random(seed)
    largest = {"empty": 0, "uniform": 40, "short": 3, "varied": 300}[kind]
    if kind in ("empty", "uniform"):
        return [random.randbytes(largest) for _ in range(count)]
    return [random.randbytes(random.randint(0, largest)) for _ in range(count)]


KINDS = ("empty", "uniform", "short", "varied")


def new_scan(query: ReadQuery, max_scan: int = 10**6, *, made: type[Scan] = Scan, **config: Any) -> Scan:
    topic = Topic("t", TOPIC_ID, TopicConfig(**config))
    topic.log = Log(TOPIC_ID, shard=0, epoch=1, usage=Usage())
    return made(topic, query, NOW, max_scan)


# -- reads -----------------------------------------------------------------------------------------------------------


def flipped(data: bytes, at: int, mask: int) -> bytes:
    return data[:at] + bytes((data[at] ^ mask,)) + data[at + 1 :]


class Reading(NamedTuple):
    """The arguments of one scan: a query, limits, times, dead records, wrong bytes."""

    length: int
    kind: str
    seed: int
    limit: int
    max_bytes: int
    max_scan: int
    beyond: int
    step_ms: int
    ttl_ms: int
    dead: frozenset[int]
    flips: frozenset[int]
    odd: frozenset[int]
    filter: str
    skip_corrupt: bool
    split: int


def few(most: int) -> st.SearchStrategy[frozenset[int]]:
    """Mostly none, so that the effect of one argument shows."""
    nothing: frozenset[int] = frozenset()
    return st.just(nothing) | st.just(nothing) | st.frozensets(st.integers(0, most), max_size=2)


READINGS = st.builds(
    Reading,
    length=st.integers(1, 40) | st.integers(6, 600),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 1000),
    limit=st.integers(1, 50) | st.integers(1, 700),
    max_bytes=st.integers(1, 500) | st.integers(1, 100_000),
    max_scan=st.just(10**6) | st.integers(1, 700),
    beyond=st.integers(-30, 5),
    step_ms=st.sampled_from([0, 0, 1, 200]),
    ttl_ms=st.sampled_from([0, 0, 0, 900, 1000, 1001]),
    dead=few(50),
    flips=few(3000),
    odd=few(50),
    filter=st.sampled_from([PLAIN, PLAIN, PLAIN, "exclude", "tag", "from_ts"]),
    skip_corrupt=st.booleans(),
    split=st.integers(0, 40),
)


#: Everything that makes a read not use columns, or ends it early, one at a time.
ALONE: list[dict[str, Any]] = [
    *({"dead": frozenset({index})} for index in (0, 1, 5, 19, 20)),
    *({"odd": frozenset({index})} for index in (0, 2, 3, 19)),
    *({"beyond": beyond} for beyond in (-19, -14, -13, -1, 3)),
    *({"limit": limit} for limit in (1, 5, 6, 19, 20, 21)),
    *({"max_scan": count} for count in (1, 5, 6, 19, 20, 21)),
    *({"max_bytes": size} for size in (1, 40, 41, 79, 80, 81, 799, 800, 801)),
    *({"max_bytes": 240, "split": split, "limit": limit} for split in (5, 6, 7, 14) for limit in (6, 13, 1000)),
    *({"ttl_ms": ms, "step_ms": step_ms} for ms in (900, 999, 1000, 1001) for step_ms in (0, 10)),
    *({"filter": name, "step_ms": 50} for name in ("exclude", "tag", "from_ts")),
]


def query_of(reading: Reading) -> ReadQuery:
    return ReadQuery(
        limit=reading.limit,
        max_bytes=reading.max_bytes,
        skip_corrupt=reading.skip_corrupt,
        exclude_nodes=frozenset({b"n"}) if reading.filter == "exclude" else frozenset(),
        tag=TagMatch(b"t") if reading.filter == "tag" else None,
        from_ts=TS + 500 if reading.filter == "from_ts" else None,
    )


def damaged(data: bytes, flips: frozenset[int]) -> bytes:
    for at in flips:
        data = flipped(data, IN_FRONT + at % (len(data) - 2 * IN_FRONT), 1 + at % 255)
    return data


def outcome(scan: Scan, cursors: list[int], error: RecordCorrupt | None) -> Any:
    told = None if error is None else (error.message, error.detail)
    usage = scan._topic.log.usage.corrupt_reads  # pyright: ignore[reportPrivateUsage]
    return scan.records, scan.scanned, scan.size, scan.done, scan.corrupt, cursors, usage, told


def scanned_log(reading: Reading, frames: Frames, verified: bool, made: type[Scan]) -> Any:
    """In two pieces, as if from two batches."""
    scan = new_scan(query_of(reading), reading.max_scan, made=made, ttl_ms=reading.ttl_ms, dedupe_node=True)
    data = damaged(frames.log, frozenset() if verified else reading.flips)
    cursors: list[int] = []
    split = min(reading.split, reading.length)
    at = IN_FRONT
    for begin, end in ((0, split), (split, reading.length)):
        sizes = frames.sizes[begin:end]
        if not sizes or scan.done:
            continue
        span = BatchSlice(FIRST, (3 << 40) + 1000, at, FIRST + begin, TS, sizes)
        bits = bytes(index in reading.dead for index in range(begin, end))
        try:
            cursors.append(scan.take(Piece(span, data, at, verified, bits if any(bits) else None)))
        except RecordCorrupt as error:
            return outcome(scan, cursors, error)
        at += sum(sizes)
    return outcome(scan, cursors, None)


def scanned_segment(reading: Reading, frames: Frames, made: type[Scan]) -> Any:
    scan = new_scan(query_of(reading), reading.max_scan, made=made, ttl_ms=reading.ttl_ms, dedupe_node=True)
    data = damaged(frames.segment, reading.flips)
    cursors: list[int] = []
    split = min(reading.split, reading.length)
    dead = sum(1 << index for index in reading.dead)
    end_seq = FIRST + reading.length + reading.beyond
    for begin, end in ((0, split), (split, reading.length)):
        entries = frames.entries[begin:end]
        if not entries or scan.done or FIRST + begin >= end_seq:
            continue
        base = entries[0].offset
        found = SegmentSlice(FIRST + begin, entries, data[base : entries[-1].end], base)
        try:
            cursors.append(scan.take_slice(SegmentId(TOPIC_ID, FIRST, 1), found, dead >> begin, end_seq))
        except RecordCorrupt as error:
            return outcome(scan, cursors, error)
    return outcome(scan, cursors, None)


@given(reading=READINGS)
def test_a_read_by_columns_is_a_read_frame_by_frame(reading: Reading) -> None:
    odd = {index: (b"n" if index % 2 else b"", b"t" if index % 3 else b"") for index in reading.odd}
    frames = framed(bodies_of(reading.length, reading.kind, reading.seed), odd=odd, step_ms=reading.step_ms)

    def everything(made: type[Scan]) -> list[Any]:
        return [
            *(scanned_log(reading, frames, verified, made) for verified in (False, True)),
            scanned_segment(reading, frames, made),
        ]

    assert everything(Scan) == everything(ScanModel)


def plain_reading(**changes: Any) -> Reading:
    none: frozenset[int] = frozenset()
    usual = Reading(20, "varied", 1, 1000, 1 << 20, 10**6, 0, 0, 0, none, none, none, PLAIN, False, 0)
    return usual._replace(**changes)


def both(reading: Reading, frames: Frames, made: type[Scan]) -> tuple[Any, Any]:
    return scanned_log(reading, frames, False, made), scanned_segment(reading, frames, made)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("changes", ALONE, ids=str)
def test_limits_and_filters_of_a_read_by_columns_match_the_model(changes: dict[str, Any], kind: str) -> None:
    reading = plain_reading(kind=kind, **changes)
    odd = {index: (b"n" if index % 2 else b"", b"t" if index % 3 else b"") for index in reading.odd}
    frames = framed(bodies_of(reading.length, kind, 1), odd=odd, step_ms=reading.step_ms)
    assert both(reading, frames, Scan) == both(reading, frames, ScanModel)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("skip_corrupt", [False, True])
def test_a_read_by_columns_of_damaged_frames_matches_the_model(kind: str, skip_corrupt: bool) -> None:
    frames = framed(bodies_of(7, kind, 3))
    for at in range(len(frames.log) - 2 * IN_FRONT):
        reading = plain_reading(length=7, kind=kind, flips=frozenset({at}), skip_corrupt=skip_corrupt)
        log, segment = both(reading, frames, Scan)
        assert (log, segment) == both(reading, frames, ScanModel)
        if skip_corrupt:
            assert (len(log[0]), len(log[4]), len(segment[0]), len(segment[4])) == (6, 1, 6, 1)
        else:
            assert (log[-1] is not None, segment[-1] is not None) == (True, True)


@pytest.mark.parametrize("kind", ["uniform", "varied"])
def test_records_of_a_large_piece_are_not_created(kind: str) -> None:
    frames = framed(bodies_of(20, kind, 1), step_ms=1)
    for log in (
        scanned_log(plain_reading(kind=kind), frames, False, Scan),
        scanned_segment(plain_reading(kind=kind), frames, Scan),
    ):
        assert isinstance(log[0], FrameRecords)


@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_reported_before_records_beyond_the_byte_limit(kind: str) -> None:
    frames = framed(bodies_of(7, kind, 3))
    for at in range(len(frames.log) - 2 * IN_FRONT):
        reading = plain_reading(length=7, kind=kind, flips=frozenset({at}), max_bytes=60)
        assert both(reading, frames, Scan) == both(reading, frames, ScanModel)


# -- small pieces ----------------------------------------------------------------------------------------------------


def pieces_of(reading: Reading, frames: Frames, verified: bool) -> list[Piece]:
    """Batches of 1 to 20 records, each in separate bytes."""
    data = damaged(frames.log, frozenset() if verified else reading.flips)
    random = Random(reading.seed)
    pieces: list[Piece] = []
    begin, at = 0, IN_FRONT
    while begin < reading.length:
        end = min(reading.length, begin + random.choice((1, 1, 1, 2, 5, 20)))
        sizes = frames.sizes[begin:end]
        in_front = random.randrange(3)
        own = data[at - in_front : at + sum(sizes) + random.randrange(3)]
        if random.random() < 0.02:
            own = own[: random.randrange(len(own))]  # the file was missing, or ended too early
        bits = bytes(index in reading.dead for index in range(begin, end))
        slice_ = BatchSlice(FIRST + begin, ((3 << 40) + 1000 + at), 0, FIRST + begin, TS, sizes)
        pieces.append(Piece(slice_, own, in_front, verified, bits if any(bits) else None))
        begin, at = end, at + sum(sizes)
    return pieces


def taken(reading: Reading, pieces: list[Piece], merged_bytes: int | None) -> Any:
    """`merged_bytes` None: each piece alone."""
    made = new_scan(query_of(reading), reading.max_scan, ttl_ms=reading.ttl_ms, dedupe_node=True)
    last = 0
    try:
        if merged_bytes is None:
            for piece in pieces:
                last = made.take(piece)
                if made.done:
                    break
        else:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(scan_module, "_MERGED_BYTES", merged_bytes)
                last = made.take_all(pieces)
    except RecordCorrupt as error:
        return outcome(made, [], error)
    return outcome(made, [last], None)


@given(reading=READINGS, verified=st.booleans(), merged_bytes=st.sampled_from([200, 1000, 1 << 18]))
def test_a_read_by_columns_of_small_pieces_matches_the_model(
    reading: Reading, verified: bool, merged_bytes: int
) -> None:
    odd = dict.fromkeys(reading.odd, (b"n", b"t"))
    frames = framed(bodies_of(reading.length, reading.kind, reading.seed), odd=odd, step_ms=reading.step_ms)
    pieces = pieces_of(reading, frames, verified)
    assert taken(reading, pieces, merged_bytes) == taken(reading, pieces, None)


def test_small_pieces_are_merged() -> None:
    reading = plain_reading(length=40, kind="uniform")
    scan = new_scan(query_of(reading))
    pieces = pieces_of(reading, framed(bodies_of(40, "uniform", 1)), True)
    scan.take_all(pieces)
    assert len(scan.records) == 40
    assert len(parts_of(scan.records)) < len(pieces) / 3
