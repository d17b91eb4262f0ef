"""storage.format.idx_entry against itself and against the independent decoder."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from storage.format import idx_entry
from storage.format.idx_entry import ENTRY_SIZE, Entry, IdxDamaged
from tests.support.spec_segment import decode_idx
from tests.unit.format.mutations import one_byte_changes, truncations

u32, u64 = st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 64) - 1)
entries = st.tuples(u32, u32 | st.sampled_from([0, 0, 256, 1 << 16, 1 << 24]), u64, st.integers(0, 7))
columns = st.lists(entries, max_size=30)

SOME = [(0, 59, 1_755_000_000_000, 0), (59, 0, 1_755_000_000_000, 0), (59, 113, 1_755_000_000_001, 7), (172, 46, 9, 4)]


def packed(rows: list[tuple[int, int, int, int]]) -> bytes:
    return b"".join(idx_entry.pack(*row) for row in rows)


@given(columns)
def test_entries_round_trip(rows: list[tuple[int, int, int, int]]) -> None:
    built = b"".join([idx_entry.pack(*row) for row in rows])
    assert built == packed(rows)
    assert idx_entry.parse(built) == idx_entry.parse(memoryview(built)) == rows
    assert [idx_entry.unpack(built, index) for index in range(len(rows))] == rows


@given(columns)
def test_the_independent_decoder_reads_the_same(rows: list[tuple[int, int, int, int]]) -> None:
    found = decode_idx(packed(rows))
    assert [
        (each.offset, each.size, each.ts, each.has_tag | each.has_node << 1 | each.deleted << 2) for each in found
    ] == rows


@given(columns)
@example([])
@example([(0, 0, 0, 0)])
def test_dead_bits_mark_deleted_and_absent_records(rows: list[tuple[int, int, int, int]]) -> None:
    expected = sum(1 << index for index, row in enumerate(rows) if row[1] == 0 or row[3] & 4)
    assert idx_entry.dead_bits(packed(rows)) == expected
    assert idx_entry.dead_bits(memoryview(packed(rows))) == expected


def test_an_entry_cut_short_is_no_dead_bit() -> None:
    whole = packed(SOME)
    assert idx_entry.dead_bits(whole + whole[:19]) == idx_entry.dead_bits(whole) == 0b1110


@given(columns.filter(bool), st.data())
def test_deleting_changes_bytes_16_to_19_of_a_single_entry(
    rows: list[tuple[int, int, int, int]], data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, len(rows) - 1))
    content = bytearray(packed(rows))
    content[index * ENTRY_SIZE + 16 : (index + 1) * ENTRY_SIZE] = idx_entry.deleted_tail(bytes(content), index)
    rows[index] = (*rows[index][:3], rows[index][3] | 4)
    assert idx_entry.parse(bytes(content)) == rows


@pytest.mark.parametrize("row", SOME)
def test_every_changed_byte_is_detected(row: tuple[int, int, int, int]) -> None:
    before, behind = packed(SOME[:2]), packed(SOME[2:])
    for offset, changed in one_byte_changes(idx_entry.pack(*row)):
        content = before + changed + behind
        assert idx_entry.damaged(content) == [2], f"byte {offset} was changed"
        with pytest.raises(IdxDamaged, match="entry 2 "):
            idx_entry.parse(content)
        with pytest.raises(IdxDamaged, match="entry 2 "):
            idx_entry.unpack(content, 2)
        with pytest.raises(IdxDamaged, match="entry 2 "):
            idx_entry.deleted_tail(content, 2)


def test_every_truncation_is_detected_at_the_truncated_entry() -> None:
    whole = packed(SOME)
    for cut in truncations(whole):
        if len(cut) % ENTRY_SIZE:
            with pytest.raises(IdxDamaged) as caught:
                idx_entry.parse(cut)
            assert caught.value.index == len(cut) // ENTRY_SIZE
        else:
            assert idx_entry.parse(cut) == SOME[: len(cut) // ENTRY_SIZE]
        with pytest.raises(IdxDamaged):
            idx_entry.unpack(cut, len(cut) // ENTRY_SIZE)


def test_zeros_are_no_entry() -> None:
    assert idx_entry.damaged(bytes(3 * ENTRY_SIZE)) == [0, 1, 2]
    with pytest.raises(IdxDamaged):
        idx_entry.unpack(bytes(ENTRY_SIZE), 0)


def test_the_first_damaged_entry_is_named() -> None:
    content = bytearray(packed(SOME))
    content[79] ^= 1
    content[25] ^= 1
    assert idx_entry.damaged(bytes(content)) == [1, 3]
    with pytest.raises(IdxDamaged, match="entry 1 "):
        idx_entry.parse(bytes(content))


def test_an_entry_gives_the_offset_of_the_next_frame() -> None:
    assert Entry(59, 113, 0, 0).end == 172
