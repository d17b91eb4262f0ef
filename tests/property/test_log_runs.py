"""Frames taken together say the same as frames one by one."""

from __future__ import annotations

from array import array

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from storage.log.encode import EncodedUnit, WriteHeader, assemble
from storage.log.reader import FrameStream
from storage.log.submission import AppendStep, LoneAppendsStep
from storage.log.units import UnitScan
from storage.records.batches import AppendedRecords, LoneAppends
from storage.records.values import NewRecord
from storage.state.tail import TailIndex
from tests.property.test_log_bytes import PLAIN, RECORD, comparable, encode_batch, file_of, writes


def scanned(data: bytes, chunk_bytes: int, group_from: int | None) -> tuple[UnitScan, list[tuple[object, ...]]]:
    """The scan and, by log, its units one by one: (offset, end, unit), grouped ones taken apart."""
    stream = FrameStream(file_of(data), 0, chunk_bytes)
    scan = UnitScan(stream, 1) if group_from is None else UnitScan(stream, 1, group_from)
    found: list[tuple[object, ...]] = []
    for each in scan.units():
        step = each.unit.steps[0] if each.unit.steps else None
        if not isinstance(step, LoneAppendsStep):
            found.append((each.offset, each.end, comparable(each.unit)))
            continue
        columns = zip(step.lone.offsets, step.lone.stamps, step.lone.sizes, step.lone.payloads, strict=True)
        for seq, (offset, ts, size, payload) in enumerate(columns, step.lone.first_seq):
            run = AppendedRecords(seq, ts, array("I", [size]), array("I", [payload]), [])
            at = each.offset + offset
            found.append((at, at + size, (None, [tuple(AppendStep(step.topic_id, run, 0))])))
    return scan, found


@st.composite
def followed_writes(draw: st.DrawFn) -> list[EncodedUnit]:
    """Writes to a few logs that mostly go on from one another, single and batches, now and then something else."""
    next_seq, ts, units = {1: 1, 2: 1, 3: 1}, 1_700_000_000_000, list[EncodedUnit]()
    for _ in range(draw(st.integers(1, 25))):
        if draw(st.integers(0, 9)) == 0:
            units.append(draw(writes()))
            continue
        topic_id, count = draw(st.sampled_from([1, 2, 3])), draw(st.sampled_from([1, 1, 1, 2, 5]))
        ts += draw(st.sampled_from([0, 0, 1]))
        batch = draw(
            st.lists(PLAIN | RECORD if draw(st.integers(0, 5)) == 0 else PLAIN, min_size=count, max_size=count)
        )
        seq = next_seq[topic_id] + draw(st.sampled_from([0, 0, 0, 0, 3]))
        next_seq[topic_id] = seq + count
        head = WriteHeader(topic_id, seq, ts, topic_id == 1, b"edge-1" if topic_id == 2 else b"")
        appends, run = encode_batch(batch, head)
        units.append(assemble(appends, run, head))
    return units


@st.composite
def long_batches(draw: st.DrawFn) -> list[EncodedUnit]:
    """Batches of many records, with stretches of equal length in them."""
    units, seq = list[EncodedUnit](), 1
    for _ in range(draw(st.integers(1, 3))):
        lengths = draw(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 30)), min_size=1, max_size=3))
        batch = [NewRecord(msgspec.Raw(b'"%s"' % (b"y" * size))) for count, size in lengths for _ in range(count)]
        if draw(st.integers(0, 3)) == 0:
            batch[draw(st.integers(0, len(batch) - 1))] = draw(RECORD)
        head = WriteHeader(7, seq, 1_700_000_000_000, draw(st.booleans()), draw(st.sampled_from([b"", b"edge-1"])))
        pieces, run = encode_batch(batch, head)
        units.append(assemble(pieces, run, head))
        seq += len(batch)
    return units


@given(
    st.lists(writes(), min_size=1, max_size=8) | followed_writes() | long_batches(),
    st.integers(1, 600) | st.just(1 << 20),
    st.integers(0, 2000) | st.just(0),
    st.binary(max_size=60),
)
def test_grouped_scanning_gives_the_units_of_plain_scanning(
    units: list[EncodedUnit], chunk_bytes: int, group_from: int, tail: bytes
) -> None:
    data = b"".join(each.payload for each in units) + tail
    plain, one_by_one = scanned(data, chunk_bytes, None)
    grouped, together = scanned(data, chunk_bytes, group_from)
    assert sorted(together, key=lambda unit: unit[0]) == one_by_one  # type: ignore[arg-type,return-value]
    for name in ("end", "reason", "frames", "loose_frames", "loose_end", "last_ts", "max_topic_id", "sync_point"):
        assert getattr(grouped, name) == getattr(plain, name), name


@given(st.lists(st.tuples(st.integers(50, 300), st.integers(0, 5)), min_size=1), st.booleans())
def test_a_bulk_append_to_the_tail_index_equals_single_appends(records: list[tuple[int, int]], deleted: bool) -> None:
    one_by_one, together = TailIndex(), TailIndex()
    for index in (one_by_one, together):
        index.set_lsn(index.append(AppendedRecords(1, 5, array("I", [60]), array("I", [3]), [])), 100, 0)
        if deleted:
            index.delete(1)
    stamps, offsets, sizes = array("Q"), array("Q"), array("I")
    at = ts = 0
    for size, later in records:
        ts += later
        stamps.append(ts)
        offsets.append(at)
        sizes.append(size)
        at += size
    for row, size in enumerate(sizes):
        run = AppendedRecords(7 + row, stamps[row], array("I", [size]), array("I", [size - 40]), [])
        one_by_one.set_lsn(one_by_one.append(run), 1000 + offsets[row], 0)
    together.extend(LoneAppends(7, stamps, offsets, sizes, array("I", [size - 40 for size in sizes])), 1000)
    last = 7 + len(sizes)
    assert list(together.slices(1, last)) == list(one_by_one.slices(1, last))
    assert together.totals(1, last) == one_by_one.totals(1, last)
    assert [together.oldest_lsn(seq) for seq in range(1, last)] == [
        one_by_one.oldest_lsn(seq) for seq in range(1, last)
    ]
