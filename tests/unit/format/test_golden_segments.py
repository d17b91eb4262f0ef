"""The bytes of a segment of format version 1: this program reads them, and writes the same."""

from __future__ import annotations

import pytest

from storage.format import idx_entry, segment_frame
from tests.golden.make_golden import FOLDER
from tests.golden.segments import DELETED, END_SEQ, FIRST_SEQ, RECORDS, TOPIC_ID, TS, segment_files
from tests.support.spec_segment import decode_segment

DATA = (FOLDER / "segment.data.bin").read_bytes()
IDX = (FOLDER / "segment.idx.bin").read_bytes()


@pytest.mark.parametrize("name", sorted(segment_files()))
def test_a_golden_segment_is_written_the_same(name: str) -> None:
    assert segment_files()[name] == (FOLDER / name).read_bytes()


def test_the_golden_segment_is_read() -> None:
    found = {}
    for index, entry in enumerate(idx_entry.parse(IDX)):
        if entry.len:
            assert segment_frame.verify(DATA, entry.offset, entry.len)
            frame = segment_frame.decode(DATA, entry.offset)
            assert (frame.topic_id, frame.seq, frame.ts) == (TOPIC_ID, FIRST_SEQ + index, TS + FIRST_SEQ + index)
            assert (frame.deleted, entry.ts, entry.len) == (frame.seq in DELETED, frame.ts, frame.size)
            assert entry.flags == bool(frame.tag) | bool(frame.node) << 1 | frame.deleted << 2
            found[frame.seq] = (frame.flags & ~3, frame.node, frame.tag, frame.data)
    assert found == RECORDS
    assert idx_entry.dead_bits(IDX) == sum(
        1 << seq - FIRST_SEQ for seq in range(FIRST_SEQ, END_SEQ) if seq not in RECORDS or seq in DELETED
    )


def test_the_golden_segment_matches_the_specification() -> None:
    records = decode_segment(DATA, IDX, topic_id=TOPIC_ID, first_seq=FIRST_SEQ, end_seq=END_SEQ)
    assert {seq: (each.flags & ~3, each.node, each.tag, each.data) for seq, each in records.items()} == RECORDS
    assert {seq for seq, each in records.items() if each.deleted} == DELETED
