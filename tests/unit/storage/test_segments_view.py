"""The answer of `Engine.segments_of`, and the files of sealed segments as clients fetch them."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Iterator

import pytest

from storage import Durability, Engine, TopicConfig
from storage.errors import NotReady, RecordCorrupt, SegmentIncomplete, SegmentUnreadable, TopicNotFound
from storage.format import idx_entry, segment_frame
from storage.format.segment_frame import SegmentFrame
from storage.records.values import TagMatch
from storage.segments.download import SegmentDownload, blank, open_download
from storage.segments.names import DATA, IDX, SegmentId, path
from storage.segments.view import SegmentNotFound, SegmentsView, SegmentView, synced_lsn
from storage.state.watermarks import LossRange
from tests.support.sim_disk import Loss, SimDisk
from tests.unit.storage.machine import DATA as ROOT
from tests.unit.storage.machine import Machine, log_of, record, seqs

FSYNC = TopicConfig(durability=Durability.FSYNC)
SMALL = {"segment_max_events": 10, "checkpoint_records": 1}


@pytest.fixture
async def machine() -> AsyncIterator[Machine]:
    async with Machine() as machine:
        yield machine


@pytest.fixture
async def engine(machine: Machine) -> Engine:
    return await machine.start(**SMALL)


async def fill(engine: Engine, count: int, config: TopicConfig = FSYNC) -> None:
    for number in range(count):
        seq = engine.state("t").next_seq if "t" in engine.catalog.topics else 1
        one = record(f"secret-{number}", tag=f"tag-{seq}", node="somebody")
        await engine.append("t", [one], config=config)


async def delete(engine: Engine, chosen: list[int]) -> None:
    """Delete these records in the state, not yet in the files."""
    for seq in chosen:
        await engine.delete_records("t", match=TagMatch(f"tag-{seq}".encode()))


def ranges_of(view: SegmentsView) -> list[tuple[int, int, bool]]:
    return [(each.first_seq, each.end_seq, each.sealed) for each in view.segments]


def segment(engine: Engine, first_seq: int) -> SegmentView:
    return next(each for each in engine.segments_of("t").segments if each.first_seq == first_seq)


async def whole(engine: Engine, first_seq: int, ext: str) -> bytes:
    download = await open_download(engine, "t", first_seq, ext)
    return await download.read(0, download.size)


def frames(content: bytes) -> Iterator[SegmentFrame]:
    """Every frame, its checksum verified."""
    at = 0
    while at < len(content):
        frame = segment_frame.decode(content, at)
        yield frame
        at += frame.size


def deleted_seqs(content: bytes) -> list[int]:
    return [frame.seq for frame in frames(content) if frame.deleted]


def flagged(content: bytes, first_seq: int) -> list[int]:
    entries = idx_entry.parse(content)
    return [first_seq + number for number, entry in enumerate(entries) if entry.flags & idx_entry.DELETED]


# -- the view --------------------------------------------------------------------------------------------------------


async def test_an_empty_topic_has_no_segments_and_an_empty_tail(engine: Engine) -> None:
    await engine.put_topic("t", FSYNC)
    view = engine.segments_of("t")
    assert (view.segments, view.loss) == ([], [])
    assert (view.tail.first_seq, view.tail.end_seq) == (1, 1)
    assert (view.earliest_seq, view.evict_floor, view.head_seq, view.durable_seq) == (1, 1, 0, 0)
    assert view.cluster_id == engine.cluster_id
    assert (view.topic_id, view.epoch) == (engine.state("t").topic_id, engine.state("t").epoch)


async def test_records_not_yet_flushed_are_the_tail(engine: Engine) -> None:
    await fill(engine, 25)
    before = engine.segments_of("t")
    assert (before.segments, before.tail.first_seq, before.tail.end_seq) == ([], 1, 26)
    await engine.segment_worker.flush_all()
    await fill(engine, 3)
    view = engine.segments_of("t")
    assert ranges_of(view) == [(1, 11, True), (11, 21, True), (21, 26, False)]
    assert (view.tail.first_seq, view.tail.end_seq, view.head_seq) == (26, 29, 28)
    assert [(each.records, each.live) for each in view.segments] == [(10, 10), (10, 10), (5, 5)]
    assert {(each.tier, each.generation, each.format) for each in view.segments} == {("hot", 0, 1)}


async def test_sizes_and_times_of_the_view_match_the_files(machine: Machine, engine: Engine) -> None:
    for _ in range(10):
        await fill(engine, 1)
        machine.clock.tick(7)
    await engine.segment_worker.flush_all()
    content = [*frames(await whole(engine, 1, DATA))]
    shown = segment(engine, 1)
    assert shown.bytes == sum(frame.size for frame in content)
    assert (shown.first_ts, shown.last_ts) == (content[0].ts, content[-1].ts)
    assert shown.first_ts < shown.last_ts


async def test_an_eviction_within_a_segment_keeps_the_file_with_its_records(engine: Engine) -> None:
    await fill(engine, 20)
    await engine.segment_worker.flush_all()
    await engine.put_topic("t", TopicConfig(durability=Durability.FSYNC, cap_records=14))
    view = engine.segments_of("t")
    assert (view.earliest_seq, view.evict_floor) == (7, 7)
    assert [(each.records, each.live) for each in view.segments] == [(10, 4), (10, 10)]
    assert deleted_seqs(await whole(engine, 1, DATA)) == []


async def test_deleted_records_are_not_counted(engine: Engine) -> None:
    await fill(engine, 20)
    await engine.segment_worker.flush_all()
    await delete(engine, [3, 15])
    await engine.delete_records("t", before_seq=3)
    assert [(each.records, each.live) for each in engine.segments_of("t").segments] == [(7, 7), (9, 9)]


async def test_a_dropped_segment_is_not_listed(engine: Engine) -> None:
    await fill(engine, 25)
    await engine.segment_worker.flush_all()
    await engine.delete_records("t", before_seq=11)
    await engine.segment_worker.flush_all()
    view = engine.segments_of("t")
    assert ranges_of(view) == [(11, 21, True), (21, 26, False)]
    assert (view.earliest_seq, view.evict_floor) == (11, 1)


async def test_loss_ranges_are_listed(engine: Engine) -> None:
    await fill(engine, 5)
    lost: list[LossRange] = [(6, 9, "crash"), (20, 20, "source_trim")]
    log_of(engine, "t").evict(loss=lost)
    view = engine.segments_of("t")
    assert [(each.from_seq, each.to_seq, each.cause) for each in view.loss] == lost
    assert (view.head_seq, view.tail.end_seq, view.durable_seq) == (20, 21, 20)


async def test_an_ephemeral_topic_has_only_a_tail_and_no_durable_seq(engine: Engine) -> None:
    await fill(engine, 15, TopicConfig(durability=Durability.EPHEMERAL))
    await engine.segment_worker.flush_all()
    view = engine.segments_of("t")
    assert (view.segments, view.tail.first_seq, view.tail.end_seq) == ([], 1, 16)
    assert (view.head_seq, view.durable_seq) == (15, 0)


async def test_records_stay_durable_when_the_topic_becomes_ephemeral(engine: Engine) -> None:
    await fill(engine, 12)
    await engine.segment_worker.flush_all()
    await fill(engine, 3)
    await engine.put_topic("t", TopicConfig(durability=Durability.EPHEMERAL))
    await fill(engine, 4)
    view = engine.segments_of("t")
    assert (view.head_seq, view.durable_seq) == (19, 15)
    assert ranges_of(view) == [(1, 11, True), (11, 13, False)]
    await engine.put_topic("t", TopicConfig(durability=Durability.EPHEMERAL, cap_records=2))
    assert engine.segments_of("t").durable_seq == 15


@pytest.mark.parametrize("synced", range(8))
async def test_records_up_to_durable_seq_survive_a_power_cut(machine: Machine, synced: int) -> None:
    engine = await machine.start(**SMALL)
    await engine.put_topic("t", TopicConfig(durability=Durability.DISK))
    await engine.append("t", [record(1)])  # more seqs are reserved than are used here, so no other sync comes
    engine.shards[0].log.sync()
    for number in range(2, 9):
        await engine.append("t", [record(number), record(number)])
        if number - 1 == synced:
            engine.shards[0].log.sync()
    durable = engine.segments_of("t").durable_seq
    assert durable == 1 + 2 * synced
    engine = await machine.cut_power(Loss.DROP, **SMALL)
    assert await seqs(engine, "t") == [*range(1, durable + 1)]
    after = engine.segments_of("t")
    assert [(each.from_seq, each.cause) for each in after.loss] == [(durable + 1, "crash")]
    assert after.durable_seq == after.head_seq == after.loss[0].to_seq


async def test_records_before_a_log_rotation_are_durable(engine: Engine) -> None:
    big = record("x" * 60_000)
    for number in range(1, 9):
        await engine.append("t", [big], config=TopicConfig(durability=Durability.DISK))
        assert engine.segments_of("t").durable_seq >= number - 3
    assert synced_lsn(engine.shards[0].log) <= engine.shards[0].log.end_lsn


async def test_absent_and_deleted_topics_have_none(engine: Engine) -> None:
    await fill(engine, 12)
    await engine.segment_worker.flush_all()
    await engine.delete_topic("t")
    with pytest.raises(TopicNotFound):
        engine.segments_of("t")
    with pytest.raises(TopicNotFound):
        await open_download(engine, "t", 1, DATA)


async def test_segments_of_an_engine_before_its_start_fail_with_not_ready() -> None:
    with pytest.raises(NotReady):
        Engine(ROOT, fs=SimDisk(), threaded=False).segments_of("t")


@pytest.mark.parametrize("power", [False, True])
async def test_a_restart_changes_neither_view_nor_downloads(machine: Machine, engine: Engine, power: bool) -> None:
    await fill(engine, 25)
    await engine.segment_worker.flush_all()
    await delete(engine, [2, 13])
    before = engine.segments_of("t")
    bodies = [await whole(engine, first, ext) for first in (1, 11) for ext in (DATA, IDX)]
    engine = await (machine.cut_power(**SMALL) if power else machine.kill(**SMALL))
    after = engine.segments_of("t")
    assert after == before
    assert [await whole(engine, first, ext) for first in (1, 11) for ext in (DATA, IDX)] == bodies


# -- the files -------------------------------------------------------------------------------------------------------


async def test_downloads_of_unchanged_files_equal_the_files(machine: Machine, engine: Engine) -> None:
    await fill(engine, 10)
    await engine.segment_worker.flush_all()
    for ext in (DATA, IDX):
        on_disk = machine.disk.open(path(ROOT, SegmentId(1, 1), ext), write=False)
        assert await whole(engine, 1, ext) == on_disk.pread(on_disk.size(), 0)
        on_disk.close()


@pytest.mark.parametrize("flags_written", [False, True])
async def test_deleted_records_never_leave(engine: Engine, flags_written: bool) -> None:
    await fill(engine, 10)
    await engine.segment_worker.flush_all()
    original = await whole(engine, 1, DATA)
    await delete(engine, [4, 5, 10])
    if flags_written:
        await engine.segment_worker.flush_all()
    content = await whole(engine, 1, DATA)
    assert len(content) == len(original)
    assert deleted_seqs(content) == [4, 5, 10]
    for was, now in zip(frames(original), frames(content), strict=True):
        assert (now.seq, now.ts, now.size, now.flags) == (was.seq, was.ts, was.size, was.flags)
        if now.deleted:
            assert not any(now.node + now.tag + now.data)
            assert (len(now.node), len(now.tag), len(now.data)) == (len(was.node), len(was.tag), len(was.data))
        else:
            assert now == was
    assert flagged(await whole(engine, 1, IDX), 1) == [4, 5, 10]


async def test_records_below_a_deletion_never_leave(engine: Engine) -> None:
    await fill(engine, 20)
    await engine.segment_worker.flush_all()
    await engine.delete_records("t", before_seq=4)
    assert deleted_seqs(await whole(engine, 1, DATA)) == [1, 2, 3]
    assert flagged(await whole(engine, 1, IDX), 1) == [1, 2, 3]
    assert deleted_seqs(await whole(engine, 11, DATA)) == []


async def test_a_delete_byte_alone_withholds_a_record(machine: Machine, engine: Engine) -> None:
    await fill(engine, 10)
    await engine.segment_worker.flush_all()
    entry = idx_entry.parse(await whole(engine, 1, IDX))[6]
    file = machine.disk.open(path(ROOT, SegmentId(1, 1), DATA))
    file.pwritev([b"\xd5"], entry.end - 1)
    file.close()
    download = await open_download(engine, "t", 1, DATA)
    assert deleted_seqs(await download.read(0, download.size)) == [7]
    assert b"secret-6" not in await download.read(0, download.size)
    # Also if the read ends before the byte.
    assert b"secret" not in await download.read(entry.offset, entry.end - 1)


@pytest.mark.parametrize("sizes", [[7] * 10, [7] * 9 + [900], [3, 50, 1, 7, 7, 7, 400, 2, 9, 30]])
async def test_a_delete_byte_alone_withholds_any_record(machine: Machine, engine: Engine, sizes: list[int]) -> None:
    for size in sizes:
        await engine.append("t", [record("x" * size)], config=FSYNC)
    await engine.segment_worker.flush_all()
    original = await whole(engine, 1, DATA)
    file = machine.disk.open(path(ROOT, SegmentId(1, 1), DATA))
    for each in idx_entry.parse(await whole(engine, 1, IDX)):
        file.pwritev([b"\xd5"], each.end - 1)
        download = await open_download(engine, "t", 1, DATA)
        header = original[each.offset : each.offset + segment_frame.HEADER_SIZE]
        expected = original[: each.offset] + blank(header, each.len) + original[each.end :]
        assert deleted_seqs(expected) != []
        for begin in range(0, len(original), 23):
            for size in (1, 46, 150, len(original)):
                end = min(len(original), begin + size)
                assert await download.read(begin, end) == expected[begin:end]
        file.pwritev([b"\0"], each.end - 1)
    file.close()


async def test_every_range_equals_the_range_of_the_whole_file(engine: Engine) -> None:
    await fill(engine, 10)
    await engine.segment_worker.flush_all()
    await delete(engine, [1, 6, 10])
    for ext in (DATA, IDX):
        download = await open_download(engine, "t", 1, ext)
        content = await download.read(0, download.size)
        for begin in range(0, len(content), 11):
            for size in (1, 9, 46, 150, 333):
                end = min(len(content), begin + size)
                assert await download.read(begin, end) == content[begin:end]


async def test_a_record_deleted_during_a_download_is_not_sent(engine: Engine) -> None:
    await fill(engine, 10)
    await engine.segment_worker.flush_all()
    download = await open_download(engine, "t", 1, DATA)
    half = download.size // 2
    first = await download.read(0, half)
    await delete(engine, [10])
    content = first + await download.read(half, download.size)
    assert deleted_seqs(content) == [10]
    assert b"secret-9" not in content


async def test_etags_name_generation_and_deletions(engine: Engine) -> None:
    await fill(engine, 10)
    await engine.segment_worker.flush_all()
    topic_id = engine.state("t").topic_id

    async def etags() -> tuple[str, str]:
        return (await open_download(engine, "t", 1, DATA)).etag, (await open_download(engine, "t", 1, IDX)).etag

    assert await etags() == (f"{topic_id}.1.0", f"{topic_id}.1.0.0")
    await delete(engine, [2, 3])
    assert await etags() == (f"{topic_id}.1.0", f"{topic_id}.1.0.2")
    await engine.segment_worker.flush_all()
    assert await etags() == (f"{topic_id}.1.0", f"{topic_id}.1.0.2")
    await delete(engine, [4, 5, 7, 8, 9, 10])
    await engine.segment_worker.flush_all()
    assert segment(engine, 1).generation == 1
    assert await etags() == (f"{topic_id}.1.1", f"{topic_id}.1.1.0")
    assert [frame.seq for frame in frames(await whole(engine, 1, DATA))] == [1, 6]
    assert segment(engine, 1).records == 2


async def test_the_active_segment_is_not_given_out(engine: Engine) -> None:
    await fill(engine, 15)
    await engine.segment_worker.flush_all()
    with pytest.raises(SegmentNotFound) as refusal:
        await open_download(engine, "t", 11, DATA)
    assert refusal.value.detail == {"reason": "active", "first_seq": 11}


@pytest.mark.parametrize("first_seq", [0, 2, 10, 99, 2**64 - 1])
async def test_no_segment_begins_elsewhere(engine: Engine, first_seq: int) -> None:
    await fill(engine, 15)
    await engine.segment_worker.flush_all()
    with pytest.raises(SegmentNotFound) as refusal:
        await open_download(engine, "t", first_seq, IDX)
    assert refusal.value.detail["reason"] == "absent"


async def fetched(engine: Engine, what: str) -> SegmentDownload:
    """Begin a download, then let the segment be dropped or rewritten."""
    await fill(engine, 15)
    await engine.segment_worker.flush_all()
    download = await open_download(engine, "t", 1, DATA)
    if what == "dropped":
        await engine.delete_records("t", before_seq=11)
    elif what == "rewritten":
        await delete(engine, [1, 2, 3, 4, 5, 6, 7])
    else:
        await engine.delete_topic("t")
    await engine.segment_worker.flush_all()
    return download


@pytest.mark.parametrize("what", ["dropped", "rewritten", "topic deleted"])
async def test_a_download_of_a_removed_segment_fails(engine: Engine, what: str) -> None:
    download = await fetched(engine, what)
    with pytest.raises(SegmentNotFound) as refusal:
        await download.read(0, 10)
    assert refusal.value.detail["reason"] == "gone"


@pytest.mark.parametrize("ext", [DATA, IDX])
async def test_a_missing_segment_file_is_reported_with_its_range(machine: Machine, engine: Engine, ext: str) -> None:
    await fill(engine, 10)
    await engine.segment_worker.flush_all()
    machine.disk.unlink(path(ROOT, SegmentId(1, 1), ext))
    with pytest.raises(SegmentIncomplete) as refusal:
        await whole(engine, 1, ext)
    assert refusal.value.detail == {
        "topic": "t",
        "from_seq": 1,
        "to_seq": 10,
        "file": path(ROOT, SegmentId(1, 1), ext).rpartition("/")[2],
        "offset": 0,
    }


async def test_a_damaged_index_entry_is_reported_as_corrupt(machine: Machine, engine: Engine) -> None:
    await fill(engine, 10)
    await engine.segment_worker.flush_all()
    download = await open_download(engine, "t", 1, DATA)
    file = machine.disk.open(path(ROOT, SegmentId(1, 1), IDX))
    file.pwritev([b"\xff"], 7 * idx_entry.ENTRY_SIZE + 3)
    file.close()
    with pytest.raises(RecordCorrupt) as refusal:
        await open_download(engine, "t", 1, IDX)
    assert refusal.value.detail["offset"] == 7 * idx_entry.ENTRY_SIZE
    with pytest.raises(RecordCorrupt):  # deleted records cannot be reported
        await download.read(0, download.size)


async def test_a_failing_read_of_a_download_is_reported_as_unreadable(machine: Machine, engine: Engine) -> None:
    await fill(engine, 10)
    await engine.segment_worker.flush_all()
    download = await open_download(engine, "t", 1, DATA)
    machine.disk.fail("open", "*.data", errno=errno.EIO)
    with pytest.raises(SegmentUnreadable):
        await download.read(0, download.size)


async def test_a_download_leaves_no_file_open(machine: Machine, engine: Engine) -> None:
    await fill(engine, 10)
    await engine.segment_worker.flush_all()
    opened = engine.store.reader.open_segments
    for ext in (DATA, IDX):
        await whole(engine, 1, ext)
    assert engine.store.reader.open_segments == opened


# -- in the cold tier ------------------------------------------------------------------------------------------------


async def cold_engine(machine: Machine) -> Engine:
    """Segments 1 and 11 are due to move, 21 stays."""
    engine = await machine.start(**SMALL, cold_dir="/mnt/cold", hot_retain_segments=1)
    await fill(engine, 30)
    await engine.segment_worker.flush_all()
    return engine


async def test_downloads_of_cold_and_hot_segments_are_equal(machine: Machine) -> None:
    engine = await cold_engine(machine)
    hot = {(first, ext): await open_download(engine, "t", first, ext) for first in (1, 11) for ext in (DATA, IDX)}
    bodies = {key: await download.read(0, download.size) for key, download in hot.items()}
    await engine.relocator.work()
    assert [each.tier for each in engine.segments_of("t").segments] == ["cold", "cold", "hot"]
    assert not engine.fs.exists(path(ROOT, SegmentId(1, 1), DATA))
    for key, body in bodies.items():
        download = await open_download(engine, "t", *key)
        assert (download.etag, await download.read(0, download.size)) == (hot[key].etag, body)
        # A download that began before continues.
        assert await hot[key].read(50, 99) == body[50:99]


async def test_deleted_records_of_cold_segments_never_leave(machine: Machine) -> None:
    engine = await cold_engine(machine)
    await engine.relocator.work()
    await delete(engine, [2, 10])
    for _ in range(2):
        content = await whole(engine, 1, DATA)
        assert deleted_seqs(content) == [2, 10]
        assert b'secret-1"' not in content
        assert flagged(await whole(engine, 1, IDX), 1) == [2, 10]
        await engine.segment_worker.flush_all()
        await engine.relocator.work()


async def test_a_segment_missing_in_the_cold_store_is_reported(machine: Machine) -> None:
    engine = await cold_engine(machine)
    await engine.relocator.work()
    for name in machine.disk.tree():
        if name.startswith("/mnt/cold") and name.endswith(".data"):
            machine.disk.unlink(name)
    download = await open_download(engine, "t", 1, DATA)
    with pytest.raises(SegmentUnreadable):
        await download.read(0, 10)
