"""The independent decoder of segments detects every violation: a check that cannot fail proves nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import xxhash

from tests.golden.segments import END_SEQ, FIRST_SEQ, TOPIC_ID, segment_files
from tests.support.spec_segment import SegmentViolation, decode_data, decode_idx, decode_name, decode_segment
from tests.unit.format.mutations import truncations

DATA, IDX = segment_files().values()
#: The frames, and the entries of records among those without one.
FRAMES = [0, 59, 156, 225, 282]
HOLES = [0, 3, 4, 7]


def entry(offset: int, size: int, ts: int, flags: int) -> bytes:
    """An entry with a correct checksum, whatever it says."""
    fields = offset.to_bytes(4, "little") + size.to_bytes(4, "little") + ts.to_bytes(8, "little") + bytes((flags,))
    return fields + xxhash.xxh3_64_digest(fields)[:4:-1]


def replaced(number: int, change: Callable[[list[int]], object]) -> bytes:
    """The index with one changed entry."""
    old = IDX[number * 20 : number * 20 + 20]
    values = [int.from_bytes(old[begin:end], "little") for begin, end in ((0, 4), (4, 8), (8, 16), (16, 17))]
    change(values)
    return IDX[: number * 20] + entry(*values) + IDX[number * 20 + 20 :]


def held_batch(
    data: bytes = DATA,
    idx: bytes = IDX,
    *,
    topic_id: int = TOPIC_ID,
    first_seq: int = FIRST_SEQ,
    end_seq: int = END_SEQ,
) -> None:
    decode_segment(data, idx, topic_id=topic_id, first_seq=first_seq, end_seq=end_seq)


def test_the_golden_segment_is_as_specified() -> None:
    held_batch()
    assert [*(record.offset for record in decode_data(DATA)), len(DATA)] == FRAMES
    assert [number for number, each in enumerate(decode_idx(IDX)) if not each.size] == HOLES


@pytest.mark.parametrize("number", range(END_SEQ - FIRST_SEQ))
@pytest.mark.parametrize("field", range(4))
def test_a_changed_field_of_an_index_entry_is_found(number: int, field: int) -> None:
    def change(values: list[int]) -> None:
        values[field] += 1

    with pytest.raises(SegmentViolation) as caught:
        held_batch(idx=replaced(number, change))
    assert caught.value.offset == number * 20


def test_every_truncation_is_found() -> None:
    for cut in truncations(DATA):
        with pytest.raises(SegmentViolation):
            held_batch(data=cut)
    for cut in truncations(IDX):
        with pytest.raises(SegmentViolation):
            held_batch(idx=cut)


def test_every_changed_byte_is_found() -> None:
    for offset in range(len(DATA)):
        with pytest.raises(SegmentViolation):
            held_batch(data=DATA[:offset] + bytes((DATA[offset] ^ 1,)) + DATA[offset + 1 :])
    for offset in range(len(IDX)):
        with pytest.raises(SegmentViolation):
            held_batch(idx=IDX[:offset] + bytes((IDX[offset] ^ 1,)) + IDX[offset + 1 :])


def test_a_segment_of_another_log_or_place_is_found() -> None:
    for topic_id, first_seq, end_seq in ((8, 41, 49), (7, 40, 49), (7, 41, 48), (7, 44, 52)):
        with pytest.raises(SegmentViolation):
            held_batch(topic_id=topic_id, first_seq=first_seq, end_seq=end_seq)


def test_frames_in_another_order_are_found() -> None:
    with pytest.raises(SegmentViolation, match="order"):
        held_batch(data=DATA[59:] + DATA[:59])
    with pytest.raises(SegmentViolation, match="order"):
        held_batch(data=DATA + DATA[225:])


def test_a_deletion_in_only_one_file_is_found() -> None:
    with pytest.raises(SegmentViolation, match=r"\.data says"):
        held_batch(data=DATA[:58] + b"\xd5" + DATA[59:])


@pytest.mark.parametrize(
    "name",
    ["seg-00000000000000000041.data", "topics/7/seg-00000000000000000041.data", "topics/0000000000000007/seg-41.idx"],
)
def test_a_name_that_is_not_of_a_segment_file_is_found(name: str) -> None:
    with pytest.raises(SegmentViolation):
        decode_name(name)
