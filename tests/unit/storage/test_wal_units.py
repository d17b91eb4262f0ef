"""Frames become units: all frames of a batch or none, and no contradicting frames."""

from __future__ import annotations

import pytest

from storage.format import control, wal_frame
from storage.format.wal_frame import MORE, FrameType
from storage.log.reader import FrameStream
from storage.log.submission import AppendStep, ControlStep
from storage.log.units import BadUnit, ScannedUnit, UnitScan
from tests.support.sim_disk import SimDisk


def scan_of(data: bytes) -> UnitScan:
    file = SimDisk().open("/f", create=True)
    file.pwritev([data], 0)
    return UnitScan(FrameStream(file, 0, 50), 1)


def scanned(data: bytes) -> tuple[UnitScan, list[ScannedUnit]]:
    scan = scan_of(data)
    return scan, list(scan.units())


def append(seq: int, *, more: bool = False, topic_id: int = 1, ts: int = 9, tag: bytes = b"") -> bytes:
    return wal_frame.encode(1, MORE if more else 0, topic_id, seq, ts, tag=tag, data=b'{"data":%d}' % seq)


def frame(value: control.Control, *, more: bool = False, topic_id: int = 1, ts: int = 9) -> bytes:
    return wal_frame.encode(
        control.TYPE_OF[type(value)], MORE if more else 0, topic_id, 0, ts, data=control.encode_control(value)
    )


def batch(*frames: bytes, count: int | None = None, size: int | None = None, first_seq: int | None = 1) -> bytes:
    value = control.Batch(
        frames=len(frames) if count is None else count,
        body_bytes=sum(map(len, frames)) if size is None else size,
        first_seq=first_seq,
    )
    return frame(value, more=True) + b"".join(frames)


FLOORS = control.EvictWatermark(floors={"cap": 2})


def test_a_single_frame_is_a_unit() -> None:
    scan, (unit,) = scanned(append(1, tag=b"x"))
    (step,) = unit.unit.steps
    assert isinstance(step, AppendStep)
    assert (step.appended.first_seq, step.appended.ts, step.appended.tagged, step.offset) == (1, 9, [(b"x", 1)], 0)
    assert list(step.appended.payloads) == [1]
    assert (unit.offset, unit.end, unit.frames, scan.end) == (0, scan.end, 1, scan.end)


@pytest.mark.parametrize("data", [b"{}", b"", b'{"data":1,"meta":}'])
def test_an_append_without_a_record_is_refused_with_its_offset(data: bytes) -> None:
    first = append(1)
    with pytest.raises(BadUnit, match="does not hold a record") as refused:
        scanned(first + wal_frame.encode(1, 0, 1, 2, 9, data=data))
    assert refused.value.offset == len(first)


def test_a_batch_is_a_unit_with_ordered_steps() -> None:
    data = batch(frame(FLOORS, more=True), append(1, more=True), append(2, more=True), frame(FLOORS))
    _, (unit,) = scanned(data)
    kinds = [type(step) for step in unit.unit.steps]
    assert kinds == [ControlStep, AppendStep, ControlStep]
    assert unit.unit.batch is not None
    assert unit.frames == 5


@pytest.mark.parametrize("cut", range(1, 56, 6))
def test_a_truncated_batch_is_no_unit(cut: int) -> None:
    whole = append(1)
    data = whole + batch(append(2, more=True), append(3, more=True), append(4))
    scan, units = scanned(data[:-cut])
    assert len(units) == 1
    assert scan.end == len(whole)
    assert scan.loose_frames == 3
    assert scan.reason == "overrun"


def test_a_batch_beyond_the_end_of_the_file_is_incomplete() -> None:
    scan, units = scanned(batch(append(1, more=True), append(2, more=True), count=3))
    assert units == []
    assert (scan.end, scan.reason, scan.loose_frames) == (0, "batch", 3)
    assert [type(step) for step in scan.loose_steps] == [AppendStep]


@pytest.mark.parametrize(
    "frames",
    [
        (append(1, more=True), append(2)),
        (frame(FLOORS, more=True), append(1)),
        (batch(append(1, more=True), append(2), count=5),),
        (batch(append(1, more=True), append(2), size=3),),
        (batch(append(1), count=2),),
    ],
    ids=["no batch frame", "control first", "too many frames", "too many bytes", "too few frames"],
)
def test_contradictory_frames_are_refused(frames: tuple[bytes, ...]) -> None:
    with pytest.raises(BadUnit):
        scanned(b"".join(frames))


def test_an_invalid_unit_is_reported_with_its_offset() -> None:
    good = append(1)
    with pytest.raises(BadUnit) as caught:
        scanned(good + batch(append(2, more=True), append(3), count=7))
    assert caught.value.offset == len(good)


def test_an_undecodable_control_frame_is_refused() -> None:
    with pytest.raises(BadUnit):
        scanned(wal_frame.encode(FrameType.EVICT_WATERMARK, 0, 1, 0, 9, data=b"\xc1"))


def test_an_unknown_frame_type_is_distinguished_from_damage() -> None:
    with pytest.raises(control.UnknownFrameType):
        scanned(wal_frame.encode(99, 0, 1, 0, 9, data=b"\x80"))


def test_a_sync_point_is_a_unit_without_steps() -> None:
    good = append(1)
    point = control.SyncPoint(file=1, at=len(good), offset=len(good))
    scan, units = scanned(good + frame(point, topic_id=0))
    assert [len(unit.unit.steps) for unit in units] == [1, 0]
    assert scan.sync_point == point


@pytest.mark.parametrize(("file", "at"), [(1, 0), (2, len(append(1)))])
def test_a_sync_point_at_a_wrong_position_is_refused(file: int, at: int) -> None:
    with pytest.raises(BadUnit):
        scanned(append(1) + frame(control.SyncPoint(file=file, at=at, offset=0), topic_id=0))


@pytest.mark.parametrize(
    "second",
    [append(5, more=True), append(2, more=True, ts=10), append(2, more=True, topic_id=2)],
    ids=["seq", "time", "topic"],
)
def test_a_record_that_does_not_follow_the_previous_record_begins_a_new_run(second: bytes) -> None:
    _, (unit,) = scanned(batch(append(1, more=True), second, frame(FLOORS)))
    runs = [step for step in unit.unit.steps if isinstance(step, AppendStep)]
    assert [len(step.appended.sizes) for step in runs] == [1, 1]
    assert runs[1].offset == runs[0].offset + sum(runs[0].appended.sizes)


def test_the_newest_time_and_the_greatest_topic_id_are_recorded() -> None:
    scan, _ = scanned(append(1, ts=50, topic_id=7) + append(1, ts=40, topic_id=3))
    assert (scan.last_ts, scan.max_topic_id, scan.frames) == (50, 7, 2)
