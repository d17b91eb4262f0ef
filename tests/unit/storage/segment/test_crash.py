"""The machine stops at every call of a segment's life. Marked records are found complete, and unmarked ones are gone.

The test's manifest is `Manifest`: it changes only where the engine would have synced the corresponding frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from storage.segments import names
from storage.segments.check import reconcile_active, reconcile_sealed, sweep
from storage.segments.flips import flip
from storage.segments.names import SegmentId
from storage.segments.rewrite import remove, rewrite
from storage.segments.writer import ActiveSegment
from tests.support.sim_disk import Loss, SimCrash, SimDisk, When
from tests.unit.storage.segment.steps import ID, ROOT, content, decoded, flushed, made, new_disk, path, seqs


@dataclass
class Manifest:
    """The log's knowledge: the segment's name, its mark, deletions that are due, and deletions in the files."""

    id: SegmentId | None = None
    end_seq: int = ID.first_seq
    records: list[int] = field(default_factory=list[int])
    due: list[int] = field(default_factory=list[int])
    flushed: set[int] = field(default_factory=set[int])
    #: Records that a rewrite left out. Their deletions are no longer due.
    excluded_nodes: set[int] = field(default_factory=set[int])


def life(disk: SimDisk, manifest: Manifest) -> None:
    """Create, append, delete, append, rewrite, continue; remove the old files."""
    segment = ActiveSegment.create(disk, ROOT, ID)
    manifest.id = ID
    for first, present in ((41, range(41, 60)), (60, [61, 62, 65])):
        append(segment, manifest, first, list(present))
    delete(disk, manifest, [41, 44, 45, 62])
    append(segment, manifest, 66, [66, 67])
    segment.close()
    last = manifest.end_seq - 1  # dead as well, so that .data alone cannot tell where the new segment ends
    new = rewrite(disk, ROOT, ID, manifest.end_seq, 1 << (last - ID.first_seq)).id
    manifest.id, manifest.excluded_nodes = new, manifest.flushed | {last}
    remove(disk, ROOT, ID)
    segment = ActiveSegment.open(disk, ROOT, new, manifest.end_seq)
    append(segment, manifest, 68, [68, 70])
    delete(disk, manifest, [46, 70])


def append(segment: ActiveSegment, manifest: Manifest, first: int, present: list[int]) -> None:
    segment.append(*flushed(first, present))
    manifest.end_seq = present[-1] + 1
    manifest.records += present


def delete(disk: SimDisk, manifest: Manifest, gone: list[int]) -> None:
    assert manifest.id
    manifest.due = gone
    flip(disk, ROOT, manifest.id, [seq - ID.first_seq for seq in gone])
    manifest.flushed.update(gone)
    manifest.due = []


def recover(disk: SimDisk, manifest: Manifest) -> None:
    """Do the recovery's work and check its findings."""
    sweep(disk, ROOT, ID.topic_id, {manifest.id} if manifest.id else set())
    if manifest.id is None:
        folder = names.folder(ROOT, ID.topic_id)
        assert not disk.exists(folder) or disk.listdir(folder) == []
        return
    size = reconcile_active(disk, ROOT, manifest.id, manifest.end_seq)
    flip(disk, ROOT, manifest.id, [seq - ID.first_seq for seq in manifest.due])  # its Delete is replayed
    found = disk.power_cut(Loss.DROP)
    # A truncation that the killed process had not synced may be undone by now. What counts never is.
    assert reconcile_active(found, ROOT, manifest.id, manifest.end_seq) == size
    records = decoded(found, manifest.end_seq, manifest.id)
    assert [*records] == [seq for seq in manifest.records if seq not in manifest.excluded_nodes]
    expected = (manifest.flushed | {*manifest.due}) - manifest.excluded_nodes
    assert {seq for seq, record in records.items() if record.deleted} == expected
    ours = {names.data_name(41, manifest.id.gen), names.idx_name(41, manifest.id.gen)}
    assert set(found.listdir(names.folder(ROOT, ID.topic_id))) == ours
    again = ActiveSegment.open(found, ROOT, manifest.id, manifest.end_seq)
    again.append(*flushed(manifest.end_seq, [manifest.end_seq + 1]))
    assert manifest.end_seq + 1 in seqs(found.power_cut(Loss.DROP), manifest.end_seq + 2, manifest.id)


def crashes(run: Callable[[SimDisk], object], start: Callable[[], SimDisk]) -> Iterator[tuple[SimDisk, str]]:
    """Run once for each call that matters and each way to stop there: the stopped disk."""
    trial = start()
    begin = len(trial.calls)
    run(trial)
    points = [point for point in trial.crash_points() if point >= begin]
    assert points
    for point in points:
        for when in When:
            disk = start()
            disk.crash_at(point, when)
            try:
                run(disk)
            except SimCrash:
                yield disk, f"{when} {trial.calls[point]}"
            else:
                # A failing call has no moment after it. Here that is only the unlink of a missing file.
                assert (when, trial.calls[point].op) == (When.AFTER, "unlink")


def ways_to_be_found(disk: SimDisk) -> Iterator[tuple[SimDisk, str]]:
    yield disk.process_kill(), "killed"
    for loss in Loss:
        for seed in range(3 if loss in (Loss.TORN, Loss.PREFIX) else 1):
            yield disk.power_cut(loss, seed), f"{loss} {seed}"
    yield disk.power_cut(Loss.KEEP, entries=Loss.DROP), "names lost"
    yield disk.power_cut(Loss.DROP, entries=Loss.KEEP), "bytes lost"


def test_marked_records_survive_a_crash_at_any_call() -> None:
    manifest = Manifest()

    def run(disk: SimDisk) -> None:
        nonlocal manifest
        manifest = Manifest()
        life(disk, manifest)

    for disk, where in crashes(run, new_disk):
        for found, how in ways_to_be_found(disk):
            try:
                recover(found, manifest)
            except Exception as error:
                raise AssertionError(f"stopped {where}, found after {how}") from error


def unsettled() -> SimDisk:
    """Unmarked records, an index that is damaged and too long, and files without a manifest entry."""
    disk = new_disk()
    made(disk, flushed(41, range(41, 60)), flushed(60, [60, 61])).close()
    flip(disk, ROOT, ID, [0, 5])
    index = bytearray(content(disk, path("idx")))
    index[65] ^= 1
    disk.write_file(path("idx"), bytes(index) + b"torn")
    disk.write_file(path("data"), content(disk, path("data")) + bytes(700))
    disk.write_file(path("data", ID._replace(gen=1)), b"half a rewrite")
    return disk


@pytest.mark.parametrize("sealed", [False, True])
def test_a_crash_during_recovery_is_repaired_by_the_next_recovery(sealed: bool) -> None:
    end = 60
    size = made(new_disk(), flushed(41, range(41, 60))).data_bytes

    def run(disk: SimDisk) -> None:
        sweep(disk, ROOT, ID.topic_id, {ID})
        if sealed:
            if len(content(disk, path("idx"))) > 100:
                # A check by size alone does not find damage.
                disk.write_file(path("idx"), content(disk, path("idx"))[:50])
            reconcile_sealed(disk, ROOT, ID, end, size)
        else:
            assert reconcile_active(disk, ROOT, ID, end) == size

    for disk, where in crashes(run, unsettled):
        for found, how in ways_to_be_found(disk):
            try:
                run(found)
                assert seqs(found, end) == [*range(42, 46), *range(47, 60)]
                later = found.power_cut(Loss.DROP)
                run(later)  # a truncation that the killed process had not synced may have been undone
                assert seqs(later.power_cut(Loss.DROP), end) == [*range(42, 46), *range(47, 60)]
            except Exception as error:
                raise AssertionError(f"stopped {where}, found after {how}") from error
