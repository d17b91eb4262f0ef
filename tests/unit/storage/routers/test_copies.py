"""Copies by columns are the copies one by one."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from storage.format.binary import binary_body
from storage.format.wal_frame import HEADER, HOP_SHIFT, OVERHEAD
from storage.log.contents import encoded
from storage.log.encode import WriteHeader
from storage.records import columns
from storage.records.contiguous import ChainedRecords, ContiguousRecords
from storage.records.values import PlainRecords, StoredRecord
from storage.routers import copies
from storage.routers.copies import MixedCopies, UniformCopies, copies_of
from storage.state.routers.router import Definition

ALL = Definition(source="a", dest="b")
BARE = Definition(source="a", dest="b", preserve_node=False, preserve_tag=False)
TAGS_ALONE = Definition(source="a", dest="b", preserve_node=False)
NODES = st.sampled_from([b"", b"till-7"])
HEAD = WriteHeader(9, 501, 1_700_000_000_123, True, b"")
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


def stretch(count: int, size: int, first_seq: int) -> ContiguousRecords:
    """Records as they lie in the log."""
    datas = PlainRecords([msgspec.Raw(b"7" * size)] * count)
    head = WriteHeader(3, first_seq, 1_700_000_000_000, False, b"")
    frames, run = encoded(datas, head, datas.sizes(), more=False)
    found = columns.from_log(frames, 0, run.sizes, 3, first_seq, verified=False)
    assert found is not None
    return found


def singles(
    bodies: Sequence[bytes], first_seq: int, node: bytes = b"", tags: Sequence[bytes] = (b"",)
) -> list[StoredRecord]:
    return [StoredRecord(seq, 1, node, tags[seq % len(tags)], body) for seq, body in enumerate(bodies, first_seq)]


def one_by_one(records: Sequence[StoredRecord], definition: Definition) -> MixedCopies:
    return MixedCopies(copies._one_by_one(records, {}, definition, delays=True, keep_delays=True))


@given(
    st.lists(
        st.tuples(st.integers(20, 40), st.integers(1, 30)) | st.lists(BODIES, min_size=1, max_size=9),
        min_size=1,
        max_size=4,
    ),
    st.data(),
)
def test_copies_by_columns_are_the_copies_one_by_one(
    kinds: list[tuple[int, int] | list[bytes]], draw: st.DataObject
) -> None:
    parts: list[Sequence[StoredRecord]] = []
    seq = 1
    definition = draw.draw(st.sampled_from([ALL, BARE, TAGS_ALONE]))
    node = b"" if definition is ALL and any(isinstance(kind, tuple) for kind in kinds) else draw.draw(NODES)
    tags = draw.draw(st.lists(st.sampled_from([b"", b"a", b"of another length"]), min_size=1, max_size=3))
    for kind in kinds:
        parts.append(stretch(kind[0], kind[1], seq) if isinstance(kind, tuple) else singles(kind, seq, node, tags))  # type: ignore[arg-type]
        seq += len(parts[-1]) + draw.draw(st.integers(0, 2))
    records = parts[0] if len(parts) == 1 else ChainedRecords(parts)
    found = copies_of(records, {}, definition, delays=False, keep_delays=False)
    expected = one_by_one(records, definition)
    assert isinstance(found, UniformCopies)
    begin = draw.draw(st.integers(0, len(found) - 1))
    end = draw.draw(st.integers(begin + 1, len(found)))
    wanted = draw.draw(st.sampled_from([lambda _: True, lambda seq: seq % 2 == 0, lambda seq: seq == records[-1].seq]))
    for ours, theirs in (
        (found, expected),
        (found.between(begin, end), expected.between(begin, end)),
        (found.only(wanted), expected.only(wanted)),
    ):
        assert [*ours.seqs] == [*theirs.seqs]
        assert ours.sizes == theirs.sizes
        assert [*ours.records] == [*theirs.records]
        if len(ours):
            (frames, run), (one, of_one) = ours.encode(HEAD), theirs.encode(HEAD)
            assert frames == one
            assert tuple(run)[:4] == tuple(of_one)[:4]
            assert [*run.tagged] == [*of_one.tagged]
            assert [*run.delayed] == [*of_one.delayed] == []


def test_a_first_copy_says_so() -> None:
    found = copies_of(singles([b'{"data":1}', binary_body(b"x")], 5), {}, ALL, delays=False, keep_delays=False)
    payload, run = found.encode(HEAD)
    flags = [HEADER.unpack_from(payload, at)[2] for at in (0, run.sizes[0])]
    assert [each >> HOP_SHIFT for each in flags] == [1, 1]
    assert run.sizes[0] == OVERHEAD + len(b'{"data":1}')


def test_several_nodes_hops_and_delays_are_looked_at_one_by_one() -> None:
    plain = StoredRecord(1, 1, b"", b"", b'{"data":1}')
    for odd in (plain._replace(seq=2, node=b"n"), plain._replace(seq=2, tag=b"t")):
        found = copies_of([plain, odd], {}, ALL, delays=False, keep_delays=False)
        assert isinstance(found, MixedCopies if odd.node else UniformCopies)
        assert [each.node + each.tag for each in found.records] == [b"", odd.node + odd.tag]  # type: ignore[attr-defined]
        found = copies_of([plain, odd], {}, BARE, delays=False, keep_delays=False)
        assert [each.node + each.tag for each in found.records] == [b"", b""]  # type: ignore[attr-defined]
    found = copies_of([plain, plain._replace(seq=2)], {2: 7}, ALL, delays=False, keep_delays=False)
    assert [*found.seqs] == [1]
    delayed = plain._replace(body=DELAYED)
    assert [*copies_of([delayed], {}, ALL, delays=True, keep_delays=True).encode(HEAD)[1].delayed] == [
        (501, 1700000000000)
    ]
    bare = copies_of([delayed], {}, ALL, delays=True, keep_delays=False)
    assert [each.body for each in bare.records] == [b'{"data":1}']
    # To a topic that is no queue this is a key like any other.
    assert isinstance(copies_of([delayed], {}, ALL, delays=False, keep_delays=False), UniformCopies)
