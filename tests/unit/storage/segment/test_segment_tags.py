"""Searching a segment by tag, with a sidecar that is made when needed. The index always decides."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.format import idx_entry, tag_file
from storage.records.values import TagMatch
from storage.segments import chunks, names
from storage.segments.errors import SegmentCorrupt
from storage.segments.names import SegmentId
from storage.segments.reader import SegmentReader
from tests.support.sim_disk import Loss, SimCrash, SimDisk, When, quiet_crashes
from tests.support.spec_tag import decode_tag_file
from tests.unit.storage.segment.built import ROOT, Built, Made, build, cut, entry_at, numbered, put, spoil

MADE: list[Made | None] = [
    Made(tag=b"orders"),
    None,
    Made(tag=b"orders:eu", node=b"n"),
    Made(),
    Made(tag=b"orders", deleted=True),
    Made(tag=b"jobs"),
    Made(tag=b"orders"),
    None,
]


class Rig:
    """A disk with one segment, and a reader."""

    def __init__(self, made: list[Made | None] = MADE, *, first_seq: int = 101, gen: int = 0) -> None:
        self.disk = SimDisk()
        self.built = put(self.disk, build(made, first_seq=first_seq, gen=gen))
        self.id, self.end = self.built.id, self.built.end_seq
        self.tag_path = names.path(ROOT, self.id, names.TAG)
        self.reader = SegmentReader(self.disk, ROOT, 8)

    def exact(self, tag: bytes) -> list[int]:
        return self.reader.tagged(self.id, self.end, TagMatch(tag))

    def prefix(self, tag: bytes) -> list[int]:
        return self.reader.tagged(self.id, self.end, TagMatch(tag, True))

    def restart(self) -> None:
        """A new reader without open files."""
        self.reader.close()
        self.reader = SegmentReader(self.disk, ROOT, 8)

    def times(self, op: str, ext: str) -> int:
        return sum(call.op == op and call.path.endswith(f".{ext}") for call in self.disk.calls)

    def look(self) -> tuple[int, int]:
        """Reads of .data, and renames: how much was made anew so far."""
        return self.times("pread", "data"), self.times("rename", "tmp")


def test_records_are_found_by_tag_and_by_tag_prefix() -> None:
    rig = Rig()
    assert rig.exact(b"orders") == [101, 107]
    assert rig.prefix(b"orders") == [101, 103, 107]
    assert rig.prefix(b"") == [101, 103, 106, 107]
    assert (rig.exact(b"order"), rig.exact(b""), rig.prefix(b"x")) == ([], [], [])


TAGGED = st.lists(
    st.one_of(st.none(), st.builds(Made, tag=st.sampled_from([b"", b"a", b"ab", b"b"]), deleted=st.booleans())),
    min_size=1,
    max_size=25,
)


@given(TAGGED, st.sampled_from([b"a", b"ab", b"b", b""]), st.booleans())
def test_a_tag_search_equals_a_full_scan(made: list[Made | None], tag: bytes, prefix: bool) -> None:
    rig = Rig(made)
    for _ in range(2):
        assert (rig.prefix if prefix else rig.exact)(tag) == rig.built.live_with(tag, prefix=prefix)
        rig.restart()


def test_the_sidecar_has_the_documented_bytes() -> None:
    rig = Rig(gen=4)
    rig.exact(b"jobs")
    decoded = decode_tag_file(rig.disk.read_file(rig.tag_path))
    assert decoded.seqs == {b"jobs": [106], b"orders": [101, 107], b"orders:eu": [103]}
    assert (decoded.first_seq, decoded.gen, decoded.data_bytes) == (101, 4, len(rig.built.data))


def test_the_sidecar_is_made_once() -> None:
    rig = Rig()
    rig.exact(b"jobs")
    made = rig.look()
    rig.exact(b"orders")
    rig.restart()
    rig.prefix(b"orders")
    assert rig.look() == made
    assert made[1] == 1


def test_an_open_sidecar_is_checked_once() -> None:
    rig = Rig()
    rig.exact(b"jobs")
    opened, before = rig.times("open", "tag"), rig.times("pread", "tag")
    rig.exact(b"nothing of that kind")
    assert rig.times("open", "tag") == opened
    assert rig.times("pread", "tag") - before < 10


def test_a_large_segment_is_read_in_bounded_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 300)
    rig = Rig(numbered(40, tag=b"t"))
    assert rig.exact(b"t") == list(range(101, 141))
    assert max(int(call.args[1]) for call in rig.disk.calls if call.op == "pread" and "data" in call.path[-4:]) <= 300


def test_only_records_with_a_tag_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "GAP_BYTES", 0)
    rig = Rig([Made(), Made(tag=b"t"), *numbered(100), Made(tag=b"t")])
    assert rig.exact(b"t") == [102, 203]
    read = sum(int(call.args[1]) for call in rig.disk.calls if call.op == "pread" and call.path.endswith("data"))
    assert read == len(rig.built.frames[1]) + len(rig.built.frames[-1])


# ---- a wrong sidecar


def _damage(rig: Rig, how: Callable[[bytes], bytes]) -> None:
    rig.restart()
    rig.disk.write_file(rig.tag_path, how(rig.disk.read_file(rig.tag_path)))


OTHER = build([Made(tag=b"orders")] * 3, first_seq=101)


@pytest.mark.parametrize(
    "how",
    [
        lambda content: b"",
        lambda content: content[:-1],
        lambda content: content + b"\0",
        lambda content: content[:70] + b"\xff" + content[71:],
        lambda content: tag_file.encode(101, 1, len(build(MADE).data), [(b"orders", 101)]),
        lambda content: tag_file.encode(100, 0, len(build(MADE).data), [(b"orders", 101)]),
        lambda content: tag_file.encode(101, 0, len(build(MADE).data) - 1, [(b"orders", 101)]),
    ],
    ids=["empty", "cut", "longer", "changed", "of another generation", "of another segment", "of less"],
)
def test_a_damaged_or_foreign_sidecar_is_rebuilt(how: Callable[[bytes], bytes]) -> None:
    rig = Rig()
    rig.exact(b"orders")
    content = rig.disk.read_file(rig.tag_path)
    _damage(rig, how)
    assert rig.exact(b"orders") == [101, 107]
    assert rig.disk.read_file(rig.tag_path) == content


def test_every_changed_byte_of_a_sidecar_is_detected() -> None:
    rig = Rig()
    rig.exact(b"orders")
    content = rig.disk.read_file(rig.tag_path)
    for offset in range(len(content)):
        rig.restart()
        rig.disk.flip_byte(rig.tag_path, offset)
        assert rig.prefix(b"") == [101, 103, 106, 107]
        assert rig.disk.read_file(rig.tag_path) == content


def test_an_unreadable_sidecar_is_rebuilt() -> None:
    rig = Rig()
    rig.exact(b"orders")
    rig.restart()
    rig.disk.fail("pread", "*.tag", errno=errno.EIO)
    assert rig.exact(b"orders") == [101, 107]


def test_records_deleted_after_the_sidecar_was_made_are_not_found() -> None:
    rig = Rig()
    assert rig.exact(b"orders") == [101, 107]
    tail = idx_entry.deleted_tail(bytes(rig.built.idx), 6)
    file = rig.disk.open(names.path(ROOT, rig.id, names.IDX))
    file.pwritev([tail], entry_at(6) + 16)
    assert rig.exact(b"orders") == [101]
    assert rig.prefix(b"o") == [101, 103]


def test_sparse_hits_are_verified_individually() -> None:
    rig = Rig([Made(tag=b"t"), *numbered(2000), Made(tag=b"t", deleted=True), Made(tag=b"t")])
    rig.exact(b"t")
    before = len(rig.disk.calls)
    assert rig.exact(b"t") == [101, 2103]
    read = sum(int(call.args[1]) for call in rig.disk.calls[before:] if call.op == "pread" and "idx" in call.path[-4:])
    assert read < 100


def test_new_records_of_a_growing_segment_are_found() -> None:
    whole = build(MADE, first_seq=101)
    rig = Rig()
    for count in range(1, len(MADE) + 1):
        rig.built = put(rig.disk, whole)
        rig.end = 101 + count
        expected = [seq for seq in whole.live_with(b"orders") if seq < rig.end]
        assert rig.exact(b"orders") == expected
        assert rig.reader.open_segments <= 1
    rig.exact(b"orders")
    before = rig.times("open", "tag")
    rig.exact(b"orders")
    assert rig.times("open", "tag") == before
    opened = sum(call.op == "open" for call in rig.disk.calls) - 1  # the first search found no sidecar
    rig.reader.close()
    assert sum(call.op == "close" for call in rig.disk.calls) == opened


def test_a_sidecar_of_more_than_asked_for_shows_no_more() -> None:
    rig = Rig([*numbered(3, tag=b"t"), None, None])
    assert rig.exact(b"t") == [101, 102, 103]
    rig.end = 105
    assert rig.exact(b"t") == [101, 102, 103]
    rig.end = 103
    assert rig.exact(b"t") == [101, 102]


# ---- damage of the segment


def _data_byte(rig: Rig, number: int, within: int) -> None:
    spoil(rig.disk, rig.built, names.DATA, rig.built.offset(number) + within)


def test_no_byte_of_a_frame_with_a_tag_is_trusted_unverified() -> None:
    rig = Rig([Made(tag=b"a"), Made(tag=b"b"), Made(tag=b"c")])
    for within in range(len(rig.built.frames[1])):
        _data_byte(rig, 1, within)
        with pytest.raises(SegmentCorrupt) as caught:
            rig.exact(b"c")
        assert caught.value.file.endswith(".data")
        assert caught.value.offset == rig.built.offset(1)
        _data_byte(rig, 1, within)
    assert not rig.disk.exists(rig.tag_path)
    assert rig.exact(b"c") == [103]


def test_damage_of_untagged_and_deleted_records_does_not_affect_a_search() -> None:
    rig = Rig()
    _data_byte(rig, 3, 40)
    _data_byte(rig, 4, 40)
    assert rig.prefix(b"") == [101, 103, 106, 107]


def test_a_frame_of_another_record_is_reported_as_corrupt() -> None:
    rig = Rig(numbered(3, tag=b"t"))
    other = build(numbered(3, tag=b"t"), first_seq=102)
    rig.disk.write_file(names.path(ROOT, rig.id, names.DATA), bytes(other.data))
    with pytest.raises(SegmentCorrupt):
        rig.exact(b"t")


def test_a_frame_of_another_log_is_reported_as_corrupt() -> None:
    rig = Rig(numbered(3, tag=b"t"))
    other = build(numbered(3, tag=b"t"), first_seq=101, topic_id=8)
    rig.disk.write_file(names.path(ROOT, rig.id, names.DATA), bytes(other.data))
    with pytest.raises(SegmentCorrupt):
        rig.exact(b"t")


def test_a_damaged_entry_of_a_hit_is_named() -> None:
    rig = Rig()
    rig.exact(b"orders")
    spoil(rig.disk, rig.built, names.IDX, entry_at(6) + 16)
    assert rig.exact(b"jobs") == [106]
    with pytest.raises(SegmentCorrupt) as caught:
        rig.exact(b"orders")
    assert (caught.value.file, caught.value.offset) == (names.path(ROOT, rig.id, names.IDX), entry_at(6))


def test_short_data_is_reported_as_corrupt() -> None:
    rig = Rig()
    cut(rig.disk, rig.built, names.DATA, len(rig.built.data) - 1)
    with pytest.raises(SegmentCorrupt):
        rig.exact(b"orders")


# ---- a disk that fails, a machine that stops


@pytest.mark.parametrize(("op", "path"), [("pwritev", "*.tag.tmp"), ("datasync", "*.tag.tmp"), ("open", "*.tag.tmp")])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_failed_write_of_a_sidecar_does_not_stop_the_search(op: str, path: str, code: int) -> None:
    rig = Rig()
    rig.disk.fail(op, path, errno=code)
    assert rig.exact(b"orders") == [101, 107]
    assert rig.reader.sidecars.unwritten == 1
    assert not [name for name in rig.disk.tree() if name.endswith((".tag", ".tmp"))]
    assert rig.exact(b"orders") == [101, 107]
    assert rig.disk.exists(rig.tag_path)
    assert rig.reader.sidecars.unwritten == 1


def test_a_short_write_is_finished() -> None:
    rig = Rig()
    rig.disk.short_writes("*.tag.tmp", times=3)
    rig.exact(b"orders")
    assert decode_tag_file(rig.disk.read_file(rig.tag_path)).seqs[b"orders"] == [101, 107]


def test_a_leftover_temporary_sidecar_is_replaced() -> None:
    rig = Rig()
    temporary = rig.tag_path + ".tmp"
    rig.disk.write_file(temporary, b"x" * 4000)
    assert rig.exact(b"orders") == [101, 107]
    assert not rig.disk.exists(temporary)
    assert decode_tag_file(rig.disk.read_file(rig.tag_path)).seqs[b"jobs"] == [106]


def _rig_with_leftovers() -> Rig:
    """What an earlier crash may have left: a half-written sidecar under its temporary name."""
    rig = Rig()
    rig.disk.write_file(rig.tag_path + ".tmp", b"TTAG" + bytes(600))
    return rig


def _points_of_a_search() -> list[int]:
    rig = _rig_with_leftovers()
    rig.prefix(b"orders")
    return rig.disk.crash_points()


def _crashed_at(number: int, when: When) -> Rig:
    rig = _rig_with_leftovers()
    rig.disk.crash_at(number, when)
    with quiet_crashes(), pytest.raises(SimCrash):
        rig.prefix(b"orders")
    return rig


@pytest.mark.parametrize("when", list(When))
def test_a_crash_while_the_sidecar_is_made_costs_no_answer(when: When) -> None:
    points = _points_of_a_search()
    assert len(points) >= 5
    for number in points:
        rig = _crashed_at(number, when)
        for loss in Loss:
            for seed in range(2):
                reader = SegmentReader(rig.disk.power_cut(loss, seed), ROOT, 8)
                assert reader.tagged(rig.id, rig.end, TagMatch(b"orders", True)) == [101, 103, 107]


def test_a_sidecar_once_made_survives_a_power_cut() -> None:
    rig = Rig()
    rig.exact(b"orders")
    found = rig.disk.power_cut(Loss.DROP)
    assert decode_tag_file(found.read_file(rig.tag_path)).seqs[b"jobs"] == [106]


# ---- several at once, and segments that go


def _in_threads(count: int, job: Callable[[], None]) -> list[threading.Thread]:
    threads = [threading.Thread(target=job) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


def test_concurrent_searches_make_a_single_sidecar() -> None:
    rig = Rig()
    found: list[list[int]] = []
    with rig.disk.hold("pread", "*.data") as gate:
        threads = _in_threads(4, lambda: found.append(rig.exact(b"orders")))
        gate.wait_held()
    for thread in threads:
        thread.join(10)
    assert found == [[101, 107]] * 4
    assert rig.look()[1] == 1


def test_while_a_sidecar_is_made_other_segments_are_searched() -> None:
    rig = Rig()
    other = put(rig.disk, build(MADE, first_seq=901))
    with rig.disk.hold("pread", f"*{101:020d}.data") as gate:
        threads = _in_threads(1, lambda: rig.exact(b"orders") and None)
        gate.wait_held()
        assert rig.reader.tagged(other.id, other.end_seq, TagMatch(b"orders")) == [901, 907]
        assert rig.reader.dead_bits(rig.id, rig.end) == 0b10010010
    for thread in threads:
        thread.join(10)


def test_a_segment_removed_during_the_sidecar_build_leaves_no_sidecar() -> None:
    rig = Rig()
    with rig.disk.hold("datasync", "*.tag.tmp") as gate:
        threads = _in_threads(1, lambda: rig.exact(b"orders") and None)
        gate.wait_held()
        rig.reader.forget(rig.id)
        for ext in (names.DATA, names.IDX):
            rig.disk.unlink(names.path(ROOT, rig.id, ext))
    for thread in threads:
        thread.join(10)
    assert [name for name in rig.disk.tree() if "seg-" in name] == []


def test_each_generation_has_its_own_sidecar() -> None:
    rig = Rig()
    rig.exact(b"orders")
    rewritten: Built = put(rig.disk, build([MADE[0], *[None] * 7], first_seq=101, gen=1))
    assert rig.reader.tagged(SegmentId(7, 101, 1), rewritten.end_seq, TagMatch(b"orders")) == [101]
    assert rig.exact(b"orders") == [101, 107]
