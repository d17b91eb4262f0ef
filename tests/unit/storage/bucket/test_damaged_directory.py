"""The disk of an owner gives back other bytes than were written. No base has them while the bucket has better ones."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from storage import Durability, ReadQuery, TagMatch, TopicConfig
from storage.backup import BackupFailed, Damage, DirectoryDamaged, taking
from storage.backup.bases import damaged_seqs
from storage.bucket import Candidate
from storage.cells.owner import CellOwner, State, begin
from storage.format import Entries, idx_entry, segment_frame
from storage.platform.unsynced import UnsyncedFile
from storage.segments import SegmentId, names
from tests.support.memory_bucket import MemoryBucket
from tests.unit.storage.bucket.test_owner import (
    CELL,
    FSYNC,
    SMALL,
    TTL_S,
    UNSYNCED,
    contents,
    nothing,
    record,
    taken,
    until,
)

#: Two segments that are sealed, and one that is not.
RECORDS = 50
LOCAL = "one"
QUICK = msgspec.structs.replace(SMALL, put_interval_ms=0)


@pytest.fixture
def bucket() -> MemoryBucket:
    found = MemoryBucket()
    begin(found, CELL, Candidate("init", "00" * 16))
    return found


@pytest.fixture
async def owners() -> AsyncIterator[list[CellOwner]]:
    made: list[CellOwner] = []
    yield made
    for each in made:
        await each.close()


async def filled(owner: CellOwner, begin: int = 0, end: int = RECORDS) -> None:
    if not begin:
        await owner.engine.put_topic("events", FSYNC)
    for number in range(begin, end):
        tag = "x" if 2 <= number < 18 else None
        await owner.engine.append("events", [msgspec.structs.replace(record(number), tag=tag)])
    await owner.engine.segment_worker.flush_all()


def data_files(owner: CellOwner) -> list[Path]:
    return sorted(Path(owner.engine.path).rglob("seg-*.data"))


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def slots(bucket: MemoryBucket) -> set[str]:
    return {key for key in bucket.objects if key.startswith(f"{CELL}/log/")}


def events(logs: list[Any]) -> list[tuple[int, int, int, bool]]:
    return [
        (each["segment"], each["seq"], each["records"], each["stored"])
        for each in logs
        if each["event"] == "cell_directory_damaged"
    ]


def found_nothing(*_arguments: object) -> list[int]:
    """As a program that does not look."""
    return []


def newest_snapshot(owner: CellOwner) -> Path:
    return max(Path(owner.engine.path).glob("meta/snapshot-*"))


def is_marked(owner: CellOwner) -> bool:
    """Whether the directory may be used again."""
    return (Path(owner.engine.path) / ".cell").exists()


async def is_refused(owner: CellOwner, bucket: MemoryBucket) -> list[tuple[int, int, int, bool]]:
    """A base is refused, and the process stops. The next one is not given the directory."""
    before, bases = slots(bucket), owner.bases
    with capture_logs() as logs, pytest.raises(DirectoryDamaged):
        await owner.put_base()
    assert (owner.state, owner.may_answer(), owner.bases) == (State.LOST, False, bases)
    assert before <= slots(bucket)
    assert not is_marked(owner)
    await owner.abandon()
    return events(logs)


@pytest.mark.parametrize(("segment", "at"), [(0, 50), (1, 5), (2, 50)])
async def test_damage_behind_the_newest_base_costs_nothing(
    bucket: MemoryBucket, tmp_path: Path, owners: list[CellOwner], segment: int, at: int
) -> None:
    first = await taken(bucket, tmp_path, owners, LOCAL, QUICK)
    await filled(first)
    flip(data_files(first)[segment], at)
    [(begins, seq, records, stored)] = await is_refused(first, bucket)
    assert (begins, records, stored) == (20 * segment + 1, 1, False)
    assert begins <= seq <= begins + 1
    second = await taken(bucket, tmp_path, owners, LOCAL, QUICK)
    assert await contents(second) == [*range(RECORDS)]
    await second.put_base()
    await second.abandon()
    assert await contents(await taken(bucket, tmp_path, owners, options=QUICK)) == [*range(RECORDS)]


async def test_the_process_is_told_once_to_end(
    bucket: MemoryBucket, tmp_path: Path, owners: list[CellOwner], monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[Exception] = []
    candidate, root = Candidate("node", "ab" * 16), str(tmp_path / LOCAL)
    owner = CellOwner(bucket, CELL, root, candidate, options=QUICK, ttl_s=TTL_S, on_lost=lost.append)
    owners.append(owner)
    await owner.start()
    await filled(owner)
    flip(data_files(owner)[0], 50)
    with capture_logs() as logs:
        monkeypatch.setattr("storage.cells.owner.BASE_SLOTS", 1)
        await until(lambda: bool(lost))
        await owner.give("cd" * 16, nothing)  # a signal, at the same time
    assert [type(each) for each in lost] == [DirectoryDamaged]
    assert len(events(logs)) == 1
    assert not owner.released


async def test_a_record_that_a_base_has_is_fetched_again(
    bucket: MemoryBucket, tmp_path: Path, owners: list[CellOwner]
) -> None:
    first = await taken(bucket, tmp_path, owners, LOCAL, QUICK)
    await filled(first)
    await first.put_base()
    await filled(first, RECORDS, RECORDS + 5)
    flip(data_files(first)[2], 50)
    assert await is_refused(first, bucket) == [(41, 41, 1, False)]
    assert await contents(await taken(bucket, tmp_path, owners, LOCAL, QUICK)) == [*range(RECORDS + 5)]


async def test_what_an_earlier_base_has_stored_is_not_read_again(
    bucket: MemoryBucket, tmp_path: Path, owners: list[CellOwner]
) -> None:
    first = await taken(bucket, tmp_path, owners, LOCAL, QUICK)
    await filled(first)
    await first.put_base()
    flip(data_files(first)[0], 50)
    await first.put_base()
    await first.abandon()
    assert await contents(await taken(bucket, tmp_path, owners, options=QUICK)) == [*range(RECORDS)]


async def test_a_file_that_cannot_be_read_is_damage(
    bucket: MemoryBucket, tmp_path: Path, owners: list[CellOwner], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await taken(bucket, tmp_path, owners, LOCAL, QUICK)
    await filled(first)
    path, pread = str(data_files(first)[0]), UnsyncedFile.pread

    def fails(file: UnsyncedFile, size: int, offset: int) -> bytes:
        if os.readlink(f"/proc/self/fd/{file._fd}") == path:  # pyright: ignore[reportPrivateUsage]
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pread(file, size, offset)

    monkeypatch.setattr(UnsyncedFile, "pread", fails)
    assert await is_refused(first, bucket) == [(1, 1, 0, False)]
    monkeypatch.undo()
    assert await contents(await taken(bucket, tmp_path, owners, LOCAL, QUICK)) == [*range(RECORDS)]


@pytest.mark.parametrize("segment", [0, 2])
@pytest.mark.parametrize("suffix", [".idx", ".data"])
async def test_a_file_that_is_missing_is_damage(
    bucket: MemoryBucket, tmp_path: Path, owners: list[CellOwner], segment: int, suffix: str
) -> None:
    first = await taken(bucket, tmp_path, owners, LOCAL, QUICK)
    await filled(first)
    data_files(first)[segment].with_suffix(suffix).unlink()
    assert await is_refused(first, bucket) == [(20 * segment + 1, 20 * segment + 1, 0, False)]
    assert await contents(await taken(bucket, tmp_path, owners, LOCAL, QUICK)) == [*range(RECORDS)]


async def test_a_file_that_was_deleted_because_the_disk_is_full_is_no_damage(
    bucket: MemoryBucket, tmp_path: Path, owners: list[CellOwner], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await taken(bucket, tmp_path, owners, LOCAL, QUICK)
    await filled(first)
    path, open_data = str(data_files(first)[0]), taking.open_data

    def is_deleted_before(fs: Any, root: str, id: SegmentId) -> Any:
        if names.path(root, id, names.DATA) == path:
            if first.engine.backups.pins.holds(id):
                monkeypatch.setattr(first.engine.shards[0].log, "full", True)
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return open_data(fs, root, id)

    monkeypatch.setattr(taking, "open_data", is_deleted_before)
    with capture_logs() as logs, pytest.raises((BackupFailed, OSError)):
        await first.put_base()
    assert (first.state, events(logs)) == (State.OWNER, [])
    monkeypatch.undo()
    await first.put_base()
    assert await contents(first) == [*range(RECORDS)]


@pytest.mark.parametrize("segment", [0, 2])
@pytest.mark.parametrize("stored", [False, True])
async def test_an_index_that_is_not_as_written_is_damage(
    bucket: MemoryBucket, tmp_path: Path, owners: list[CellOwner], segment: int, stored: bool
) -> None:
    first = await taken(bucket, tmp_path, owners, LOCAL, QUICK)
    await filled(first)
    if stored:
        await first.put_base()
        await filled(first, RECORDS, RECORDS + 1)
    flip(data_files(first)[segment].with_suffix(".idx"), 5)
    assert await is_refused(first, bucket) == [(20 * segment + 1, 20 * segment + 1, 0, False)]
    assert await contents(await taken(bucket, tmp_path, owners, LOCAL, QUICK)) == [*range(RECORDS + stored)]


async def test_damage_that_is_in_the_bucket_stays_and_stops_nobody(
    bucket: MemoryBucket, tmp_path: Path, owners: list[CellOwner], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await taken(bucket, tmp_path, owners, LOCAL, QUICK)
    await filled(first)
    flip(data_files(first)[2], 50)
    with monkeypatch.context() as patch:
        patch.setattr("storage.backup.bases.damaged_seqs", found_nothing)
        await first.put_base()
    await first.abandon()
    second = await taken(bucket, tmp_path, owners, options=QUICK)
    for end in (RECORDS + 5, RECORDS + 20):  # still appended to, and sealed
        await filled(second, end - 5 if end == RECORDS + 5 else RECORDS + 5, end)
        with capture_logs() as logs:
            await second.put_base()
        assert events(logs) == [(41, 41, 1, True)]
    with capture_logs() as logs:
        await second.put_base()
    assert not events(logs)
    assert second.state is State.OWNER
    found = await second.engine.read("events", ReadQuery(limit=1000, skip_corrupt=True))
    assert (len(found.records), found.corrupt_seqs) == (RECORDS + 19, [41])
    # More damage, in a segment that has some in the bucket.
    await filled(second, RECORDS + 20, RECORDS + 25)
    flip(data_files(second)[-1], 50)
    assert [each[-1] for each in await is_refused(second, bucket)] == [False]


async def test_damage_in_the_bucket_stays_when_a_segment_is_rewritten(
    bucket: MemoryBucket, tmp_path: Path, owners: list[CellOwner], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await taken(bucket, tmp_path, owners, options=QUICK)
    await filled(first)
    flip(data_files(first)[0], 50)
    with monkeypatch.context() as patch:
        patch.setattr("storage.backup.bases.damaged_seqs", found_nothing)
        await first.put_base()
    await first.abandon()
    second = await taken(bucket, tmp_path, owners, options=QUICK)
    await second.engine.delete_records("events", match=TagMatch(b"x"))
    await until(lambda: data_files(second)[0].name.endswith(".1.data"))
    with capture_logs() as logs:
        await second.put_base()
    assert events(logs) == [(1, 1, 1, True)]
    found = await second.engine.read("events", ReadQuery(limit=1000, skip_corrupt=True))
    assert (second.state, found.corrupt_seqs) == (State.OWNER, [1])


async def test_a_base_that_cannot_be_read_decides_nothing(
    bucket: MemoryBucket, tmp_path: Path, owners: list[CellOwner]
) -> None:
    first = await taken(bucket, tmp_path, owners, LOCAL, QUICK)
    await filled(first)
    await first.put_base()
    await filled(first, RECORDS, RECORDS + 5)
    flip(data_files(first)[2], 50)
    parts = {key: data for key, data in bucket.objects.items() if "/part-" in key}
    for key in parts:
        bucket.objects[key] = b"other bytes"
    with capture_logs() as logs, pytest.raises(BackupFailed):
        await first.put_base()
    assert (first.state, events(logs)) == (State.OWNER, [])
    bucket.objects.update(parts)
    await is_refused(first, bucket)


async def test_what_was_in_no_slot_yet_is_in_one_before_the_process_ends(
    bucket: MemoryBucket, tmp_path: Path, owners: list[CellOwner], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await taken(bucket, tmp_path, owners, LOCAL, msgspec.structs.replace(UNSYNCED, put_interval_ms=0))
    await filled(first)
    await first.engine.put_topic("fast", TopicConfig(durability=Durability.DISK))
    flip(data_files(first)[0], 50)
    refuse = first._refuse  # pyright: ignore[reportPrivateUsage]

    async def refuse_later(error: DirectoryDamaged) -> None:
        await first.engine.append("fast", [record("fast")])
        await refuse(error)

    monkeypatch.setattr(first, "_refuse", refuse_later)
    await is_refused(first, bucket)
    assert await contents(await taken(bucket, tmp_path, owners, options=QUICK), "fast") == ["fast"]


async def test_a_clean_stop_of_a_damaged_directory_leaves_everything_in_the_bucket(
    bucket: MemoryBucket, tmp_path: Path, owners: list[CellOwner]
) -> None:
    first = await taken(bucket, tmp_path, owners, LOCAL, QUICK)
    await filled(first)
    flip(data_files(first)[0], 50)
    await first.close()
    assert first.released
    assert await contents(await taken(bucket, tmp_path, owners, LOCAL, QUICK)) == [*range(RECORDS)]


async def test_a_damaged_snapshot_is_not_stored(
    bucket: MemoryBucket, tmp_path: Path, owners: list[CellOwner], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await taken(bucket, tmp_path, owners, LOCAL, QUICK)
    await filled(first)
    take, damage = first.engine.backups._source.take_snapshot, [True]  # pyright: ignore[reportPrivateUsage]

    async def take_damaged(clean: bool) -> tuple[int, list[int]]:
        taken = await take(clean)
        if damage.pop():
            flip(newest_snapshot(first), 50)
        return taken

    source = first.engine.backups._source._replace(take_snapshot=take_damaged)  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(first.engine.backups, "_source", source)
    with pytest.raises(BackupFailed):
        await first.put_base()
    assert (first.state, first.bases) == (State.OWNER, 0)
    damage.append(False)
    await first.put_base()


# -- frames -----------------------------------------------------------------------------------------------------------


async def test_frames_are_compared_with_the_index_and_only_where_bytes_are_new(
    bucket: MemoryBucket, tmp_path: Path, owners: list[CellOwner]
) -> None:
    owner = await taken(bucket, tmp_path, owners, options=msgspec.structs.replace(QUICK, segment_max_events=1000))
    await filled(owner)
    [path] = data_files(owner)
    written, entries = bytearray(path.read_bytes()), idx_entry.parse(path.with_suffix(".idx").read_bytes())
    written[entries[1].end - 1] = segment_frame.DELETED
    data = bytes(written)
    id = SegmentId(owner.engine.topic("events").log.topic_id, 1)
    size = len(data) // RECORDS
    assert damaged_seqs(id, entries, data, 0, len(data)) == []
    for seq in (1, 25, RECORDS):
        at = entries[seq - 1].offset
        for flipped in (at, at + 4, at + 20, at + 45):
            other = bytearray(data)
            other[flipped] ^= 1
            assert damaged_seqs(id, entries, bytes(other), 0, len(data)) == [seq]
            assert damaged_seqs(id, entries, bytes(other), flipped, flipped + 1) == [seq]
            assert damaged_seqs(id, entries, bytes(other), 0, at) == []
            assert seq == RECORDS or damaged_seqs(id, entries, bytes(other), at + 2 * size, len(data)) == []
    # Sound frames where others belong.
    assert damaged_seqs(id._replace(topic_id=9), entries, data, 0, len(data)) == [*range(1, RECORDS + 1)]
    assert damaged_seqs(id._replace(first_seq=2), entries, data, 0, len(data)) == [*range(2, RECORDS + 2)]
    assert damaged_seqs(id, entries, data[:-1], 0, len(data)) == [RECORDS]
    # A seq without a record.
    gap = entries[9]
    shorter = data[: gap.offset] + data[gap.end :]
    moved = [each if at < 9 else each._replace(offset=each.offset - gap.len) for at, each in enumerate(entries)]
    entries = Entries.of([*moved[:9], gap._replace(len=0), *moved[10:]])
    assert damaged_seqs(id, entries, shorter, 0, len(data)) == []
    other = bytearray(shorter)
    other[gap.offset + 20] ^= 1
    assert damaged_seqs(id, entries, bytes(other), 0, len(data)) == [11]
    assert damaged_seqs(id._replace(first_seq=2), entries, shorter, 0, len(data)) == [
        seq for seq in range(2, RECORDS + 2) if seq != 11
    ]


def test_damage_says_what_is_wrong() -> None:
    assert str(Damage(SegmentId(1, 21), [22, 25], "")) == "2 records, the first with seq 22, are not as written"
    assert str(Damage(SegmentId(1, 21), [], "Input/output error")) == "Input/output error"
