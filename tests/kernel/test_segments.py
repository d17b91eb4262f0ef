"""Frames of the log become .data and .idx with the bytes of the formats' codecs."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kernel
from kernel import Header
from storage.format import idx_entry, segment_frame
from tests.kernel.samples import Sample, batches, headers, log_of

pytestmark = pytest.mark.usefixtures("twin")

HEADER = Header(7, 100, 1_700_000_000_000, b"n1", 4)


@given(batches, headers, st.randoms(use_true_random=False))
def test_data_and_index_are_the_bytes_of_the_codecs(batch: list[Sample], header: Header, choice: random.Random) -> None:
    log = log_of(batch, header)
    columns = kernel.scan(log).columns
    numbers = [number for number in range(len(batch)) if choice.random() < 0.8]
    chosen = columns.take(numbers)
    dead = bytes(choice.random() < 0.2 for _ in numbers)
    next_seq = max(0, header.first_seq - 3)
    data, index = kernel.to_segment(log, chosen, data_offset=1000, next_seq=next_seq, last_ts=5, dead=dead)
    frames, entries, at, last_ts, seq = [], [], 1000, 5, next_seq
    for number, is_dead in zip(numbers, dead, strict=True):
        _, _, own_seq, ts, size, *_ = columns.row(number)
        entries += [idx_entry.pack(at, 0, last_ts, 0)] * (own_seq - seq)
        seq = own_seq + 1
        if is_dead:
            entries.append(idx_entry.pack(at, 0, last_ts, 0))
            continue
        frames.append(segment_frame.from_wal(log, columns.offsets[number], size))
        entries.append(idx_entry.pack(at, size, ts, segment_frame.idx_flags(columns.flags[number])))
        at, last_ts = at + size, ts
    assert data == b"".join(frames)
    assert index == b"".join(entries)


def test_verified_frames_of_the_log_are_valid_in_the_segment() -> None:
    log = log_of([Sample(b"1", tag=b"t"), Sample(b'"%b"' % (b"x" * 3000)), Sample(b"3")], HEADER)
    data, index = kernel.to_segment(log, kernel.scan(log).columns)
    assert kernel.scan(data, kernel.Kind.SEGMENT, topic_id=7, first_seq=100).reason == ""
    for number, entry in enumerate(idx_entry.parse(index)):
        assert segment_frame.verify(data, entry.offset, entry.len)
        assert segment_frame.decode(data, entry.offset).seq == 100 + number


def test_no_frames_are_no_data() -> None:
    assert kernel.to_segment(b"", kernel.Columns()) == (b"", b"")


@pytest.mark.parametrize(
    "options",
    [
        {"data_offset": (1 << 32) - 60},
        {"next_seq": 101},
        {"next_seq": 0, "first_seq": 1 << 40},
        {"dead": b""},
    ],
)
def test_arguments_that_do_not_fit_are_refused(options: dict[str, object]) -> None:
    first_seq = options.get("first_seq", 100)
    log = log_of([Sample(b"1")] * 2, HEADER._replace(first_seq=first_seq))
    options = {name: value for name, value in options.items() if name != "first_seq"}
    with pytest.raises(ValueError, match=r"end at|seq|dead"):
        kernel.to_segment(log, kernel.scan(log).columns, **options)


def test_frames_other_than_appends_of_the_log_are_refused() -> None:
    log = log_of([Sample(b"1")] * 2, HEADER)
    columns = kernel.scan(log).columns
    data, _ = kernel.to_segment(log, columns)
    changed = bytearray(log)
    changed[4] = 2
    for buffer, rows in ((data, kernel.scan(data, kernel.Kind.SEGMENT).columns), (changed, columns), (data, columns)):
        with pytest.raises(ValueError, match="no Append frame"):
            kernel.to_segment(buffer, rows)


entries = st.lists(
    st.tuples(st.sampled_from([0, 46, 60, 1000]), st.integers(0, (1 << 64) - 1), st.integers(0, 7)), max_size=40
)


@given(entries, st.integers(0, 1 << 31))
def test_an_index_is_built_and_read(rows: list[tuple[int, int, int]], at: int) -> None:
    lens, stamps, flags = [row[0] for row in rows], [row[1] for row in rows], bytes(row[2] for row in rows)
    index = kernel.build_index(lens, stamps, flags, data_offset=at, last_ts=9)
    expected, offset, last_ts = [], at, 9
    for size, ts, own in rows:
        last_ts = ts if size else last_ts
        expected.append((offset, size, last_ts, own if size else 0))
        offset += size
    assert index == b"".join(idx_entry.pack(*entry) for entry in expected)
    found = kernel.parse_index(index)
    assert [*zip(found.offsets, found.lens, found.stamps, found.flags, strict=True)] == expected
    assert found.damaged == -1


def test_a_change_of_any_byte_of_an_index_is_noticed() -> None:
    index = bytearray(kernel.build_index([50, 0, 60], [1, 2, 3], b"\1\0\2"))
    for at in range(len(index)):
        for mask in (0x01, 0x80, 0xFF):
            index[at] ^= mask
            assert kernel.parse_index(index).damaged == at // idx_entry.ENTRY_SIZE
            index[at] ^= mask


def test_an_entry_cut_short_is_damaged() -> None:
    index = kernel.build_index([50, 60], [1, 2], b"\1\0")
    for size in range(len(index)):
        found = kernel.parse_index(index[:size])
        whole = size // idx_entry.ENTRY_SIZE
        assert (len(found.lens), found.damaged) == (whole, whole if size % idx_entry.ENTRY_SIZE else -1)


@pytest.mark.parametrize(
    ("lens", "stamps", "flags"), [([1], [], b"\0"), ([1], [1], b""), ([(1 << 32) - 1, 1], [1, 1], b"\0\0")]
)
def test_an_invalid_index_is_refused(lens: list[int], stamps: list[int], flags: bytes) -> None:
    with pytest.raises(ValueError, match=r"end at|lens|stamps|flags"):
        kernel.build_index(lens, stamps, flags)
