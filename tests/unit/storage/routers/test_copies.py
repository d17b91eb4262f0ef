"""Copies made by columns equal copies made one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

import kernel
from storage.format import wal_frame
from storage.format.wal_frame import HEADER, HOP_SHIFT, OVERHEAD, FrameFlag
from storage.log.encode import DURABLE, encoded
from storage.records.frame_records import ChainedRecords, FrameRecords
from storage.records.values import PlainRecords, ReadResult, StoredRecord
from storage.routers import copies
from storage.routers.copies import Copies, FrameCopies, MixedCopies, copies_of
from storage.routers.windows import Picked, Window
from storage.state.routers.router import Definition
from tests.support.bodies import binary_body

ALL = Definition(source="a", dest="b")
BARE = Definition(source="a", dest="b", preserve_node=False, preserve_tag=False)
TAGS_ALONE = Definition(source="a", dest="b", preserve_node=False)
NODES = st.sampled_from([b"", b"till-7"])
HEAD = kernel.Header(9, 501, 1_700_000_000_123, b"", DURABLE)
BODIES = st.sampled_from(
    [
        b'{"data":1}',
        b'{"data":{"a":1,"meta":{}},"meta":{"x":2}}',
        b'{"data":"abc","ct":1700000000000}',
        b'{"data":[1],"meta":3,"ct":17,"h":[["a","Yg=="]]}',
        binary_body(b'raw,"meta":'),
    ]
)
DELAYED = b'{"data":1,"deliver_at":1700000000000}'


def stretch(count: int, size: int, first_seq: int) -> FrameRecords:
    """Records as they are in the log."""
    datas = PlainRecords([msgspec.Raw(b"7" * size)] * count)
    head = kernel.Header(3, first_seq, 1_700_000_000_000, b"", 0)
    frames, _ = encoded(datas, head, datas.sizes(), more=False)
    return FrameRecords(frames, kernel.scan(frames).columns)


def singles(
    bodies: Sequence[bytes], first_seq: int, node: bytes = b"", tags: Sequence[bytes] = (b"",)
) -> list[StoredRecord]:
    return [StoredRecord(seq, 1, node, tags[seq % len(tags)], body) for seq, body in enumerate(bodies, first_seq)]


def one_by_one(records: Sequence[StoredRecord], definition: Definition) -> MixedCopies:
    return MixedCopies(copies._one_by_one(records, {}, definition, delays=True, keep_delays=True))


def framed(records: Sequence[StoredRecord]) -> FrameRecords:
    """The same as they are in the log."""
    flags = [int(FrameFlag.BINARY) if record.binary else 0 for record in records]
    data = b"".join([wal_frame.encode(1, flag, 3, *each) for flag, each in zip(flags, records, strict=True)])
    return FrameRecords(data, kernel.scan(data).columns)


def check_same(found: Copies, expected: Copies) -> None:
    assert [*found.seqs] == [*expected.seqs]
    assert found.sizes == expected.sizes
    assert [*found.records] == [*expected.records]
    if len(found):
        (frames, run), (one, of_one) = found.encode(HEAD), expected.encode(HEAD)
        assert frames == one
        assert (run.first_seq, run.ts, run.sizes, run.payloads) == (
            of_one.first_seq,
            of_one.ts,
            of_one.sizes,
            of_one.payloads,
        )
        assert [*run.tagged] == [*of_one.tagged]
        assert [*run.delayed] == [*of_one.delayed] == []


KINDS = st.lists(
    st.tuples(st.integers(20, 40), st.integers(1, 30)) | st.lists(BODIES, min_size=1, max_size=9),
    min_size=1,
    max_size=4,
)
WANTED: list[Callable[[int], bool]] = [lambda _: True, lambda seq: seq % 2 == 0, lambda seq: seq == 3]


@given(KINDS, st.data())
def test_copies_made_from_frames_equal_single_copies(
    kinds: list[tuple[int, int] | list[bytes]], draw: st.DataObject
) -> None:
    parts: list[Sequence[StoredRecord]] = []
    seq = 1
    definition = draw.draw(st.sampled_from([ALL, BARE, TAGS_ALONE]))
    node = draw.draw(NODES) if definition is ALL else b""
    tags = draw.draw(st.lists(st.sampled_from([b"", b"a", b"of another length"]), min_size=1, max_size=3))
    for kind in kinds:
        if isinstance(kind, tuple):
            parts.append(stretch(kind[0], kind[1], seq))
        else:
            parts.append(framed(singles(kind, seq, node, tags if definition is ALL else (b"",))))
        seq += len(parts[-1]) + draw.draw(st.integers(0, 2))
    records = parts[0] if len(parts) == 1 else ChainedRecords(parts)
    found = copies_of(records, {}, definition, delays=False, keep_delays=False)
    expected = one_by_one(records, definition)
    assert isinstance(found, FrameCopies)
    begin = draw.draw(st.integers(0, len(found) - 1))
    end = draw.draw(st.integers(begin + 1, len(found)))
    wanted = draw.draw(st.sampled_from(WANTED))
    check_same(found, expected)
    check_same(found.between(begin, end), expected.between(begin, end))
    check_same(found.only(wanted), expected.only(wanted))


@given(
    st.lists(st.tuples(NODES, st.sampled_from([b"", b"a", b"bb"]), BODIES), min_size=1, max_size=40),
    st.booleans(),
    st.sampled_from([["tag", "Eq", "a"], ["tag", "Glob", "*"], ["tag", "Glob", "a*"]]),
)
def test_copies_made_from_a_window_equal_single_copies(
    given_parts: list[tuple[bytes, bytes, bytes]], in_frames: bool, matching: list[str]
) -> None:
    records = [StoredRecord(seq, 1, *part) for seq, part in enumerate(given_parts, 5)]
    each: Sequence[StoredRecord] = framed(records) if in_frames else records
    definition = Definition(source="a", dest="b", filter=matching)
    match = definition.match
    assert match is not None
    wanted = [record for record in records if match.matches(record.tag)]
    result = ReadResult(topic="a", records=each, next_from_seq=records[-1].seq, head_seq=0, earliest_seq=0)
    window = Window(4, result, 0, 0)
    picked = Picked(window, window.matching(match))
    assert [*picked] == wanted
    assert [*picked[1:]] == wanted[1:]
    found = copies_of(picked, {}, definition, delays=False, keep_delays=False)
    expected = one_by_one(wanted, definition)
    check_same(found, expected)
    if len(found) > 1:
        check_same(found.between(1, len(found)), expected.between(1, len(found)))
        check_same(found.only(lambda seq: seq % 2 == 1), expected.only(lambda seq: seq % 2 == 1))


def test_a_first_copy_has_hop_count_1() -> None:
    found = copies_of(singles([b'{"data":1}', binary_body(b"x")], 5), {}, ALL, delays=False, keep_delays=False)
    payload, run = found.encode(HEAD)
    flags = [HEADER.unpack_from(payload, at)[2] for at in (0, run.sizes[0])]
    assert [each >> HOP_SHIFT for each in flags] == [1, 1]
    assert run.sizes[0] == OVERHEAD + len(b'{"data":1}')


def test_records_with_mixed_nodes_hops_or_delays_are_copied_one_by_one() -> None:
    plain = StoredRecord(1, 1, b"", b"", b'{"data":1}')
    for odd in (plain._replace(seq=2, node=b"n"), plain._replace(seq=2, tag=b"t")):
        for records in ([plain, odd], framed([plain, odd])):
            found = copies_of(records, {}, ALL, delays=False, keep_delays=False)
            assert isinstance(found, FrameCopies if isinstance(records, FrameRecords) else MixedCopies)
            assert [each.node + each.tag for each in found.records] == [b"", odd.node + odd.tag]  # type: ignore[attr-defined]
            found = copies_of(records, {}, BARE, delays=False, keep_delays=False)
            assert isinstance(found, MixedCopies)
            assert [each.node + each.tag for each in found.records] == [b"", b""]  # type: ignore[attr-defined]
    found = copies_of([plain, plain._replace(seq=2)], {2: 7}, ALL, delays=False, keep_delays=False)
    assert [*found.seqs] == [1]
    delayed = plain._replace(body=DELAYED)
    assert [*copies_of([delayed], {}, ALL, delays=True, keep_delays=True).encode(HEAD)[1].delayed] == [
        (501, 1700000000000)
    ]
    bare = copies_of([delayed], {}, ALL, delays=True, keep_delays=False)
    assert [each.body for each in bare.records] == [b'{"data":1}']
    # For a topic that is not a queue, this is a key like any other.
    assert isinstance(copies_of([delayed], {}, ALL, delays=False, keep_delays=False), MixedCopies)
