"""The next generation of a segment: it has the live records at their places, and damage is still visible."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from storage.format.segment_frame import verify
from storage.platform.posix import PosixFileSystem
from storage.segments import names
from storage.segments.check import rebuild_idx, reconcile_active, reconcile_sealed
from storage.segments.errors import SegmentBroken, SegmentCorrupt
from storage.segments.flips import flip
from storage.segments.rewrite import remove, rewrite
from storage.segments.writer import ActiveSegment
from tests.support.sim_disk import Loss, SimDisk
from tests.unit.storage.segment.steps import ID, ROOT, content, decoded, flushed, made, new_disk, path, seqs, spoil

SEQS = [41, 42, 43, 46, 47, 48]
END = 49
NEW = ID._replace(gen=1)


@pytest.fixture
def disk() -> SimDisk:
    disk = new_disk()
    made(disk, flushed(41, SEQS)).close()
    flip(disk, ROOT, ID, [0])
    return disk


def test_live_records_are_in_the_next_generation(disk: SimDisk) -> None:
    before = content(disk, path("data")), content(disk, path("idx"))
    rewritten = rewrite(disk, ROOT, ID, END, 0b1000_0010)
    assert rewritten == (NEW, disk.file_size(path("data", NEW)), [], 0)
    found = disk.power_cut(Loss.DROP)
    assert [*decoded(found, END, NEW)] == [43, 46, 47]
    assert (content(found, path("data")), content(found, path("idx"))) == before
    reconcile_sealed(found, ROOT, NEW, END, rewritten.data_bytes)


@pytest.mark.parametrize("dead", [0, 0b1111_1111])
def test_a_segment_with_all_or_no_records_live_is_rewritten(disk: SimDisk, dead: int) -> None:
    rewritten = rewrite(disk, ROOT, ID, END, dead)
    assert [*decoded(disk, END, NEW)] == ([] if dead else SEQS[1:])
    index = content(disk, path("idx", NEW))
    disk.remove_file(path("idx", NEW))
    rebuild_idx(disk, ROOT, NEW, END, rewritten.data_bytes)
    assert content(disk, path("idx", NEW)) == index


def test_a_damaged_frame_stays_visible_as_damage(disk: SimDisk) -> None:
    found = decoded(disk, END)
    damaged = found[46]
    spoil(disk, path("data"), damaged.offset + 30)
    rewritten = rewrite(disk, ROOT, ID, END, 0b10)
    assert rewritten.damaged_seqs == [46]
    data = content(disk, path("data", NEW))
    at = found[43].size
    assert data[at : at + damaged.size] == content(disk, path("data"))[damaged.offset :][: damaged.size]
    assert not verify(data, at, damaged.size)
    assert verify(data, at + damaged.size, found[47].size)


def test_damage_of_the_index_is_announced_and_leaves_no_new_file(disk: SimDisk) -> None:
    spoil(disk, path("idx"), 45)
    with pytest.raises(SegmentCorrupt) as caught:
        rewrite(disk, ROOT, ID, END, 0)
    assert (caught.value.file, caught.value.offset) == (path("idx"), 40)
    with pytest.raises(SegmentCorrupt):
        rewrite(disk, ROOT, ID, END + 1, 0)
    assert not disk.exists(path("data", NEW))


def test_a_rewrite_of_short_data_is_refused_and_leaves_no_new_file(disk: SimDisk) -> None:
    short = content(disk, path("data"))[:-1]
    disk.write_file(path("data"), short)
    with pytest.raises(SegmentCorrupt) as caught:
        rewrite(disk, ROOT, ID, END, 0)
    assert (caught.value.file, caught.value.offset) == (path("data"), len(short))
    assert disk.listdir(names.folder(ROOT, ID.topic_id)) == [names.data_name(41, 0), names.idx_name(41, 0)]


@pytest.mark.parametrize(
    ("op", "glob", "number", "raised"),
    [
        ("open", "*.1.idx", errno.EMFILE, OSError),
        ("pwritev", "*.1.data", errno.ENOSPC, OSError),
        ("pwritev", "*.1.idx", errno.EIO, SegmentBroken),
        ("datasync", "*.1.data", errno.EIO, SegmentBroken),
        ("datasync", "*.1.idx", errno.ENOSPC, SegmentBroken),
        ("sync_dir", "*", errno.EIO, OSError),
    ],
)
def test_a_failed_rewrite_leaves_no_new_file_and_can_be_repeated(
    disk: SimDisk, op: str, glob: str, number: int, raised: type[Exception]
) -> None:
    disk.fail(op, glob, errno=number)
    with pytest.raises(raised):
        rewrite(disk, ROOT, ID, END, 0)
    assert disk.listdir(names.folder(ROOT, ID.topic_id)) == [names.data_name(41, 0), names.idx_name(41, 0)]
    rewrite(disk, ROOT, ID, END, 0)
    assert seqs(disk.power_cut(Loss.DROP), END, NEW) == SEQS[1:]


def test_files_of_the_next_generation_are_never_overwritten(disk: SimDisk) -> None:
    rewrite(disk, ROOT, ID, END, 0)
    with pytest.raises(FileExistsError):
        rewrite(disk, ROOT, ID, END, 0b1111)
    assert seqs(disk, END, NEW) == SEQS[1:]


def test_a_broken_active_segment_continues_in_the_next_generation(disk: SimDisk) -> None:
    reconcile_active(disk, ROOT, ID, END)
    segment = ActiveSegment.open(disk, ROOT, ID, END)
    disk.fail("datasync", "*.idx")
    with pytest.raises(SegmentBroken):
        segment.append(*flushed(49, [49]))
    segment.close()
    new = ActiveSegment.open(disk, ROOT, rewrite(disk, ROOT, ID, END, 0).id, END)
    new.append(*flushed(49, [49]))
    assert seqs(disk.power_cut(Loss.DROP), 50, NEW) == [*SEQS[1:], 49]


def test_more_than_is_copied_at_once_is_copied_whole() -> None:
    disk = new_disk()
    part = flushed(41, range(41, 6041))
    assert part.data_bytes > 1 << 20
    made(disk, part)
    dead = sum(1 << index for index in range(0, 3000, 7))
    rewrite(disk, ROOT, ID, 6041, dead)
    assert seqs(disk, 6041, NEW) == [seq for seq in range(41, 6041) if not dead >> (seq - 41) & 1]


def test_removed_files_stay_removed(disk: SimDisk) -> None:
    disk.write_file(path("tag"), b"?")
    rewrite(disk, ROOT, ID, END, 0)
    remove(disk, ROOT, ID)
    remove(disk, ROOT, ID)
    found = disk.power_cut(Loss.DROP)
    assert found.listdir(names.folder(ROOT, ID.topic_id)) == [names.data_name(41, 1), names.idx_name(41, 1)]
    remove(new_disk(), ROOT, ID)


def test_errors_other_than_a_missing_file_are_raised(disk: SimDisk) -> None:
    for op, glob in (("unlink", "*.idx"), ("sync_dir", "*")):
        disk.fail(op, glob, errno=errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            remove(disk, ROOT, ID)


def test_a_rewrite_on_the_real_disk(tmp_path: Path) -> None:
    fs, root = PosixFileSystem(), str(tmp_path)
    segment = ActiveSegment.create(fs, root, ID)
    segment.append(*flushed(41, range(41, 400)))
    segment.close()
    new, size, damaged, _ = rewrite(fs, root, ID, 400, (1 << 300) - 1)
    assert (damaged, fs.file_size(names.path(root, new, names.DATA))) == ([], size)
    assert [*decoded(fs, 400, new, root)] == list(range(341, 400))
    remove(fs, root, ID)
    assert fs.listdir(names.folder(root, 7)) == [names.data_name(41, 1), names.idx_name(41, 1)]
