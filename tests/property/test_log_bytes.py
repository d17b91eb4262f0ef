"""Recovery reads back the units that the writer was given, in whatever pieces the bytes arrive."""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kernel
from kernel import Header
from storage.format import control, wal_frame
from storage.format.record import split_body
from storage.log import reader
from storage.log.encode import DURABLE, EncodedUnit, encode_controls, encoded
from storage.log.reader import FrameStream, find_sync_point
from storage.log.submission import AppendStep, Unit
from storage.log.units import UnitScan
from storage.log.validation import is_plain
from storage.records.batches import AppendedRecords
from storage.records.record_columns import RecordColumns
from storage.records.values import NewRecord, PlainRecords
from tests.support import wal_frames
from tests.support.sim_disk import SimDisk, SimFile
from tests.support.units import assemble

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
TRICKY = st.sampled_from(['{"data":1,"meta":2}', ',"h":', ',"meta":', ',"deliver_at":1'])
JSON = st.recursive(
    st.none() | st.integers(-(10**30), 10**30) | st.text(max_size=10) | TRICKY,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["meta", "data", "h", "a"]), inner),
    max_leaves=5,
)
RAW = JSON.map(lambda value: msgspec.Raw(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()))
OPTIONAL_TEXT = st.none() | TEXT
RECORD = st.builds(
    NewRecord,
    data=RAW,
    meta=st.none() | RAW,
    tag=OPTIONAL_TEXT,
    node=OPTIONAL_TEXT,
    deliver_at=st.none() | st.integers(0, 10**13),
)
PLAIN = st.builds(NewRecord, data=RAW)
BATCH = st.lists(RECORD, min_size=1, max_size=5) | st.lists(PLAIN, min_size=1, max_size=5)
FLOORS = st.dictionaries(st.sampled_from(["cap", "ttl"]), st.integers(1, 99), min_size=1, max_size=2)
CONTROL = st.one_of(
    st.builds(control.EvictWatermark, floors=FLOORS),
    st.builds(control.HeadWatermark, reserved=st.integers(0, 2**63)),
    st.builds(control.Delete, bound_head=st.integers(0, 99), before_seq=st.none() | st.integers(1, 99)),
    st.builds(control.TopicDelete, name=TEXT),
)


@st.composite
def writes(draw: st.DrawFn) -> EncodedUnit:
    """One unit as the engine makes them: a write with or without a key and with controls around it, or controls
    alone."""
    if draw(st.booleans()):
        return encode_controls(draw(st.lists(CONTROL, min_size=1, max_size=3)), 7, 1234)
    batch = draw(BATCH)
    node = draw(st.sampled_from([b"", b"edge-1"]))
    head = Header(
        7, draw(st.integers(1, 2**40)), draw(st.integers(1, 2**41)), node, draw(st.sampled_from([0, DURABLE]))
    )
    after = draw(st.lists(CONTROL, max_size=1))
    appends, run = encode_batch(batch, head, more=bool(after))
    key = draw(OPTIONAL_TEXT)
    before = draw(st.lists(CONTROL, max_size=2))
    return assemble(appends, run, head, before=before, after=after, key=key, hash=b"h" * 16 if key else None)


def encode_batch(batch: Sequence[NewRecord], head: Header, *, more: bool = False) -> tuple[bytes, AppendedRecords]:
    made = PlainRecords([each.data for each in batch]) if is_plain(batch) else RecordColumns(batch)
    payloads = made.sizes() if isinstance(made, PlainRecords) else made.payloads
    return encoded(made, head, payloads, more=more)


def file_of(data: bytes) -> SimFile:
    file = SimDisk().open("/f", create=True)
    file.pwritev([data], 0)
    return file


def comparable(unit: Unit) -> tuple[object, ...]:
    return (unit.batch, unit.steps)


@given(st.lists(writes(), min_size=1, max_size=6), st.integers(1, 400))
def test_scanned_units_equal_the_written_units(units: list[EncodedUnit], chunk_bytes: int) -> None:
    data = b"".join(each.payload for each in units)
    scan = UnitScan(FrameStream(file_of(data), 0, chunk_bytes), 1)
    found = list(scan.units())
    assert [comparable(each.unit) for each in found] == [comparable(each.unit) for each in units]
    assert [each.frames for each in found] == [each.frames for each in units]
    assert [data[each.offset : each.end] for each in found] == [each.payload for each in units]
    assert (scan.end, scan.reason, scan.loose_frames) == (len(data), "", 0)
    assert scan.frames == sum(each.frames for each in units)


@given(st.lists(writes(), min_size=1, max_size=4), st.data(), st.integers(1, 400))
def test_a_log_cut_at_any_byte_keeps_the_units_before_the_cut(
    units: list[EncodedUnit], data: st.DataObject, chunk: int
) -> None:
    whole = b"".join(each.payload for each in units)
    cut = data.draw(st.integers(0, len(whole)))
    tail = data.draw(st.sampled_from([b"", bytes(1), bytes(300), b"\xff" * 60]))
    scan = UnitScan(FrameStream(file_of(whole[:cut] + tail), 0, chunk), 1)
    ends = [sum(len(each.payload) for each in units[: n + 1]) for n in range(len(units))]
    kept = sum(end <= cut for end in ends)
    found = list(scan.units())
    assert [comparable(each.unit) for each in found] == [comparable(each.unit) for each in units[:kept]]
    assert scan.end == (ends[kept - 1] if kept else 0)
    assert (scan.reason == "") == (cut in (0, *ends) and not tail)


@given(BATCH, st.sampled_from([b"", b"edge-1"]), st.booleans())
def test_encoded_frames_hold_the_sent_records_byte_for_byte(batch: list[NewRecord], node: bytes, more: bool) -> None:
    head = Header(9, 41, 1_700_000_000_000, node, DURABLE)
    data, run = encode_batch(batch, head, more=more)
    tagged: list[tuple[bytes, int]] = []
    at = 0
    for index, sent in enumerate(batch):
        frame = wal_frames.decode(data, at)
        at += frame.size
        assert frame[:1] + frame[2:5] == (1, 9, 41 + index, 1_700_000_000_000)
        flags, seq = frame.flags, frame.seq
        body = split_body(frame.data)
        assert bytes(body.data) == bytes(sent.data)
        assert bytes(body.meta) == bytes(sent.meta or b"")
        assert frame.tag == (sent.tag or "").encode()
        assert frame.node == (sent.node.encode() if sent.node else node)
        assert bool(flags & wal_frame.MORE) == (more or index < len(batch) - 1)
        assert bool(flags & 1) == (sent.tag is not None)
        assert bool(flags & 2) == (sent.node is not None or bool(node))
        assert json.loads(frame.data).get("deliver_at") == sent.deliver_at
        if sent.tag:
            tagged.append((sent.tag.encode(), seq))
    assert run.tagged == tagged
    assert sum(run.sizes) == at == len(data)
    assert list(run.payloads) == [len(each.data) + len(each.meta or b"") for each in batch]


@given(writes())
def test_a_batch_frame_states_the_frames_and_bytes_that_follow(unit: EncodedUnit) -> None:
    frames, end, _ = kernel.scan(unit.payload)
    assert (end, len(frames)) == (len(unit.payload), unit.frames)
    batch = unit.unit.batch
    if batch is None:
        assert unit.frames == 1
        return
    assert batch.frames == unit.frames - 1
    assert batch.body_bytes == len(unit.payload) - frames.row(1)[0]
    runs = [step for step in unit.unit.steps if isinstance(step, AppendStep)]
    assert batch.first_seq == (runs[0].appended.first_seq if runs else None)
    assert [bool(flags & wal_frame.MORE) for flags in frames.flags] == [True] * (len(frames) - 1) + [False]


@given(st.lists(st.integers(0, 500), min_size=1, max_size=12), st.integers(1, 700), st.integers(0, 45))
def test_frames_are_found_with_any_chunk_size(lengths: list[int], chunk_bytes: int, trailing: int) -> None:
    frames = [wal_frame.encode(1, 0, 5, n + 1, 9, data=b"d" * length) for n, length in enumerate(lengths)]
    data = b"".join(frames) + bytes(trailing)
    stream = FrameStream(file_of(data), 0, chunk_bytes)
    found: list[bytes] = []
    for chunk in stream.chunks():
        assert chunk.frames
        for frame in chunk.frames:
            found.append(chunk.bytes[frame[0] : frame[0] + frame[4]])
            assert data[chunk.base + frame[0] : chunk.base + frame[0] + frame[4]] == found[-1]
    assert found == frames
    assert (stream.end, stream.reason) == (len(data) - trailing, "zero" if trailing else "")


@given(st.lists(st.integers(0, 300), min_size=1, max_size=5), st.integers(50, 900), st.integers(0, 400))
def test_the_last_sync_point_is_found_with_any_chunk_size(gaps: list[int], chunk_bytes: int, start: int) -> None:
    data = b""
    wanted: control.SyncPoint | None = None
    for gap in gaps:
        data += b"\xfe" * gap
        point = control.SyncPoint(file=2, at=len(data), offset=len(data))
        frame = wal_frame.encode(16, 0, 0, 0, 5, data=control.encode_control(point))
        if len(data) >= start:
            wanted = point
        data += frame
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "CHUNK_BYTES", chunk_bytes)
        assert find_sync_point(file_of(data + b"\xfe" * 20), 2, start) == wanted
        assert find_sync_point(file_of(data), 3, 0) is None, "of another file"
        assert find_sync_point(file_of(b"x" + data), 2, 0) is None, "not where it says it stands"
