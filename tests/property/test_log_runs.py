"""Frames applied together have the same effect as frames applied one by one."""

from __future__ import annotations

from array import array
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kernel import Batches, Header, Tags
from storage.format import Batch
from storage.log import split
from storage.log.encode import DURABLE, EncodedUnit
from storage.log.reader import FrameStream
from storage.log.submission import AppendStep, BatchesStep
from storage.log.units import UnitScan
from storage.records.batches import AppendedRecords
from storage.records.values import NewRecord
from storage.state.tail import TailIndex
from tests.property.test_log_bytes import PLAIN, RECORD, comparable, encode_batch, file_of, writes
from tests.support.units import assemble


def taken_apart(topic_id: int, batches: Batches, entry: int) -> tuple[object, ...]:
    """(offset, end, unit) of each frame."""
    seqs, lead = [*batches.seqs, batches.last_seq + 1], batches.leads[entry]
    a, b = (seq - batches.first_seq for seq in seqs[entry : entry + 2])
    ends = [*accumulate(batches.tags.lens, initial=0)]
    tagged = [
        (batches.tags.text[begin:end], seq)
        for seq, (begin, end) in zip(batches.tags.seqs, pairwise(ends), strict=True)
        if seqs[entry] <= seq < seqs[entry + 1]
    ]
    run = AppendedRecords(seqs[entry], batches.stamps[entry], batches.sizes[a:b], batches.payloads[a:b], tagged)
    file, at = split(batches.lsns[entry])
    assert file == 1
    size = sum(run.sizes)
    said: dict[str, Any] = {}
    for first_seq, count, ts, key, hash_ in batches.keyed:
        if first_seq == run.first_seq:
            assert (count, ts) == (b - a, run.ts)
            said |= {"key": key.decode(), "hash": hash_ or None}
    for first_seq, count, ts, *producer in batches.sent:
        if first_seq == run.first_seq:
            assert (count, ts) == (b - a, run.ts)
            said["producer"] = tuple(producer)
    batch = Batch(frames=b - a, body_bytes=size, first_seq=run.first_seq, **said) if lead else None
    return at - lead, at + size, (batch, [AppendStep(topic_id, run, lead)])


def scanned(data: bytes, chunk_bytes: int, group_from: int | None) -> tuple[UnitScan, list[tuple[object, ...]]]:
    """Scan the log and, by topic, its units one by one: (offset, end, unit), with grouped units split."""
    stream = FrameStream(file_of(data), 0, chunk_bytes)
    scan = UnitScan(stream, 1) if group_from is None else UnitScan(stream, 1, group_from)
    found: list[tuple[object, ...]] = []
    for each in scan.units():
        step = each.unit.steps[0] if each.unit.steps else None
        if not isinstance(step, BatchesStep):
            found.append((each.offset, each.end, comparable(each.unit)))
            continue
        found += map(partial(taken_apart, step.topic_id, step.batches), range(len(step.batches.seqs)))
    return scan, found


@st.composite
def followed_writes(draw: st.DrawFn) -> list[EncodedUnit]:
    """Writes to a few logs, mostly consecutive, single or in batches, and sometimes something else."""
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
        head = Header(topic_id, seq, ts, b"edge-1" if topic_id == 2 else b"", DURABLE if topic_id == 1 else 0)
        appends, run = encode_batch(batch, head)
        key = draw(st.sampled_from([None, None, "k", "clé " * 100]))
        units.append(
            assemble(
                *(appends, run, head),
                key=key,
                hash=None if key is None else draw(st.sampled_from([None, b"h" * 16])),
                producer=draw(st.sampled_from([None, None, (2**63 - 1, 5, 70_000)])),
            )
        )
    return units


@st.composite
def long_batches(draw: st.DrawFn) -> list[EncodedUnit]:
    """Batches of many records, some of them with equal lengths in a row."""
    units, seq = list[EncodedUnit](), 1
    for _ in range(draw(st.integers(1, 3))):
        lengths = draw(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 30)), min_size=1, max_size=3))
        batch = [NewRecord(msgspec.Raw(b'"%s"' % (b"y" * size))) for count, size in lengths for _ in range(count)]
        if draw(st.integers(0, 3)) == 0:
            batch[draw(st.integers(0, len(batch) - 1))] = draw(RECORD)
        head = Header(
            7, seq, 1_700_000_000_000, draw(st.sampled_from([b"", b"edge-1"])), draw(st.sampled_from([0, DURABLE]))
        )
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


@given(units=followed_writes(), chunk_bytes=st.sampled_from([300, 1 << 20]))
def test_plain_batches_are_grouped(units: list[EncodedUnit], chunk_bytes: int) -> None:
    scan = UnitScan(FrameStream(file_of(b"".join(each.payload for each in units)), 0, chunk_bytes), 1, 0)
    for each in scan.units():
        steps = each.unit.steps
        step = steps[0]
        if chunk_bytes > 300 and len(steps) == 1 and isinstance(step, AppendStep):
            assert step.appended.delayed


@given(st.lists(st.lists(st.integers(50, 300), min_size=1, max_size=3), min_size=1, max_size=6), st.booleans())
def test_a_bulk_append_to_the_tail_index_equals_single_appends(batches: list[list[int]], deleted: bool) -> None:
    one_by_one, together = TailIndex(), TailIndex()
    for index in (one_by_one, together):
        index.set_lsn(index.append(AppendedRecords(1, 5, array("I", [60]), array("I", [3]), [])), 100, 0)
        if deleted:
            index.delete(1)
    seq, at = 7, 1000
    tags = Tags(array("Q"), array("H"), b"")
    columns = Batches(7, array("Q"), array("Q"), array("Q"), array("I"), array("I"), array("I"), tags, [], [])
    for ts, sizes in enumerate(batches):
        lead = 60 if len(sizes) > 1 else 0
        payloads = array("I", [size - 40 for size in sizes])
        run = AppendedRecords(seq, ts, array("I", sizes), payloads, [])
        one_by_one.set_lsn(one_by_one.append(run), at, lead)
        for column, value in zip(columns[1:5], (seq, ts, at + lead, lead), strict=True):
            column.append(value)
        columns.sizes.extend(sizes)
        columns.payloads.extend(payloads)
        columns.tags.seqs.append(seq)
        columns.tags.lens.append(len(sizes))
        columns = columns._replace(tags=columns.tags._replace(text=columns.tags.text + b"%d" % len(sizes) * len(sizes)))
        columns.keyed.append((seq, len(sizes), ts, b"k", b""))
        columns.sent.append((seq, len(sizes), ts, 1, 2, 3))
        seq, at = seq + len(sizes), at + lead + sum(sizes)
    together.extend(columns)
    assert list(together.slices(1, seq)) == list(one_by_one.slices(1, seq))
    assert together.totals(1, seq) == one_by_one.totals(1, seq)
    assert [together.oldest_lsn(each) for each in range(1, seq)] == [
        one_by_one.oldest_lsn(each) for each in range(1, seq)
    ]
    for known in range(7, seq - 1):  # a start that finds records of these already applied
        rest, first = columns.behind(known), max(each for each in columns.seqs if each <= known + 1)
        assert (rest.first_seq, rest.last_seq) == (first, seq - 1)
        assert rest.sizes == columns.sizes[first - 7 :]
        for each in (rest.seqs, rest.tags.seqs, [row[0] for row in rest.keyed], [row[0] for row in rest.sent]):
            assert [*each] == [seq for seq in columns.seqs if seq >= first]
        assert rest.tags.text == b"".join(b"%d" % size * size for size in rest.tags.lens)
