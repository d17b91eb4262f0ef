"""Records with a node or a tag, taken by columns: those that were framed, whole or in part, and what copies keep."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.format import segment_frame, wal_frame
from storage.format.binary import binary_body
from storage.format.record import payload_size
from storage.format.wal_frame import CHECKSUM, HEADER_SIZE, OVERHEAD, FrameFlag, FrameType
from storage.log.encode import WriteHeader
from storage.records import columns
from storage.records.labelled import LENGTHS, Labelled
from storage.records.values import ReadResult, StoredRecord
from storage.routers.copies import MixedCopies, copies_of
from storage.routers.windows import Picked, Window
from storage.state.routers.router import Definition

TOPIC_ID, FIRST, TS, IN_FRONT = 0x0102030405060708, (1 << 40) + 250, 1_700_000_000_000, 13
BODIES = st.sampled_from(
    [
        b'{"data":1}',
        b'{"data":"longer"}',
        b'{"data":{"a":1,"meta":2}}',
        b'{"data":1,"meta":{"a":1}}',
        binary_body(b"raw"),
    ]
)
NAMES = st.sampled_from([b"", b"a", b"bb", "\u00e4\u00f6".encode()])
RECORDS = st.lists(st.tuples(NAMES, NAMES, BODIES), min_size=1, max_size=40) | st.integers(1, 300).map(
    lambda count: [(b"n", b"tag", b'{"data":1}')] * count
)
Parts = list[tuple[bytes, bytes, bytes]]


def stored(parts: Parts) -> list[StoredRecord]:
    return [StoredRecord(FIRST + number, TS + number, *part) for number, part in enumerate(parts)]


def frame_of(record: StoredRecord) -> bytes:
    flags = int(FrameFlag.BINARY) if record.binary else 0
    return wal_frame.encode(FrameType.APPEND, flags, TOPIC_ID, *record)


def both(records: list[StoredRecord], *, labelled: bool = True) -> list[Labelled]:
    """As they lie in the log, verified or not, and in a segment, with other bytes in front and behind."""
    frames = [*map(frame_of, records)]
    sizes = array("I", map(len, frames))
    around = bytes(range(1, IN_FRONT + 1))
    log = around + b"".join(frames) + around
    segment = around + b"".join([segment_frame.from_wal(frame, 0, len(frame)) for frame in frames]) + around
    stamps = [record.ts for record in records]
    found = [
        columns.from_log(log, IN_FRONT, sizes, TOPIC_ID, FIRST, verified=verified, labelled=labelled)
        for verified in (False, True)
    ]
    found.append(columns.from_segment(segment, IN_FRONT, sizes, TOPIC_ID, FIRST, stamps, labelled=labelled))
    return [each for each in found if isinstance(each, Labelled)]


@given(RECORDS)
def test_whole_frames_are_what_was_framed(parts: Parts) -> None:
    records = stored(parts)
    found = both(records)
    assert len(found) == (3 if any(node or tag for node, tag, _ in parts) else 0)
    assert not both(records, labelled=False)
    for each in found:
        assert [*each] == records
        assert [each[number] for number in range(len(each))] == records
        assert all(type(record) is StoredRecord for record in each)
        assert [*each.own()] == records
        assert [*each.stamps()] == [record.ts for record in records]
        assert each.tags() == [record.tag for record in records]
        assert each.lengths() == [len(record.body) for record in records]
        assert each.bytes_of() == sum(each.lengths())
        assert [*each.payloads()] == [payload_size(record.body, 0, len(record.body)) for record in records]
        assert each.contents() == [
            LENGTHS.pack(len(record.node), len(record.tag), len(record.body)) + record.node + record.tag + record.body
            for record in records
        ]
        for begin, end in ((0, 1), (1, len(records)), (len(records) // 2, len(records) + 1)):
            if begin < min(end, len(records)):
                assert [*each.between(begin, end)] == records[begin:end]
                assert [*each.between(begin, end).own().stamps()] == [record.ts for record in records[begin:end]]
        for here in (slice(1, -1), slice(None, None, 2), slice(None, None, -1), slice(5, 2), slice(0, 0)):
            assert each[here] == records[here]
        for count in range(1, min(4, len(records)) + 1):
            assert [*each.first(count)] == records[:count]
            assert each.fitting(sum(each.lengths()[:count])) >= count
        assert each.fitting(len(records[0].body) - 1) == 0


@pytest.mark.parametrize("alike", [True, False])
def test_a_wrong_byte_makes_them_none(alike: bool) -> None:
    records = stored([(b"n", b"tag" if alike else b"t" * number, b'{"data":1}') for number in range(8)])
    frames = [*map(frame_of, records)]
    sizes = array("I", map(len, frames))
    log = b"".join(frames)
    segment = b"".join([segment_frame.from_wal(frame, 0, len(frame)) for frame in frames])
    stamps = [record.ts for record in records]
    for at in range(len(log)):
        broken = log[:at] + bytes((log[at] ^ 1,)) + log[at + 1 :]
        assert columns.from_log(broken, 0, sizes, TOPIC_ID, FIRST, verified=False, labelled=True) is None, at
        broken = segment[:at] + bytes((segment[at] ^ 1,)) + segment[at + 1 :]
        assert columns.from_segment(broken, 0, sizes, TOPIC_ID, FIRST, stamps, labelled=True) is None, at
    for cut in (1, CHECKSUM.size, OVERHEAD, HEADER_SIZE + len(frames[-1])):
        assert columns.from_log(log[:-cut], 0, sizes, TOPIC_ID, FIRST, verified=True, labelled=True) is None


def test_copies_are_not_taken_where_only_originals_are_asked_for() -> None:
    [record] = stored([(b"", b"t", b'{"data":1}')])
    frame = wal_frame.encode(FrameType.APPEND, 1 << wal_frame.HOP_SHIFT, TOPIC_ID, *record)
    sizes = array("I", [len(frame)])
    found = columns.from_log(frame, 0, sizes, TOPIC_ID, FIRST, verified=False, labelled=True)
    assert found == [record]
    assert columns.from_log(frame, 0, sizes, TOPIC_ID, FIRST, verified=False, labelled=True, unrouted=True) is None


@given(RECORDS, st.booleans(), st.sampled_from([["tag", "Eq", "a"], ["tag", "Glob", "*"], ["tag", "Glob", "a*"]]))
def test_copies_out_of_a_window_are_the_copies_one_by_one(parts: Parts, in_one: bool, matching: list[str]) -> None:
    records = stored(parts)
    taken = (both(records) if in_one else []) or [records]
    definition = Definition(source="a", dest="b", filter=matching)
    match = definition.match
    assert match is not None
    wanted = [record for record in records if match.matches(record.tag)]
    for each in taken:
        result = ReadResult(topic="a", records=each, next_from_seq=records[-1].seq, head_seq=0, earliest_seq=0)
        window = Window(FIRST - 1, result, 0, 0)
        picked = Picked(window, window.matching(match), None)
        assert [*picked] == wanted
        assert [*picked[1:]] == wanted[1:]
        if not wanted:
            continue
        copies = copies_of(picked, {}, definition, delays=False, keep_delays=False)
        slow = copies_of(wanted, {FIRST - 5: 1}, definition, delays=False, keep_delays=False)
        assert isinstance(slow, MixedCopies)
        assert [*copies.seqs] == [*slow.seqs]
        assert copies.sizes == slow.sizes
        assert [*copies.records] == [*slow.records]
        for begin, end in ((0, len(copies)), (1, len(copies)), (0, 1)):
            if begin >= end:
                continue
            head = WriteHeader(9, 501, TS, True, b"")
            quick_frames, quick_run = copies.between(begin, end).encode(head)
            slow_frames, slow_run = slow.between(begin, end).encode(head)
            assert quick_frames == slow_frames
            assert [*quick_run.sizes] == [*slow_run.sizes]
            assert [*quick_run.tagged] == [*slow_run.tagged]
            assert quick_run.payloads == slow_run.payloads
            assert quick_run[:2] == slow_run[:2]
        odd = copies.only(lambda seq: seq % 2 == 1)
        assert [*odd.seqs] == [seq for seq in copies.seqs if seq % 2]
        assert [*odd.records] == [record for record in copies.records if record.seq % 2]
