"""One round fills several segments of a log: after a failure, with concurrent deletes, and with all records kept."""

from __future__ import annotations

import errno
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import kernel
from storage import Durability, Engine, Options, TopicConfig
from storage.records.values import TagMatch
from storage.segments import flusher, names, writer
from storage.segments.copying import Copied, Copy, copy_anew
from storage.segments.errors import SegmentBroken
from storage.segments.names import SegmentId
from tests.support.sim_disk import Loss
from tests.unit.storage.machine import DATA, Machine, record, seqs

SMALL = {"segment_max_events": 10, "checkpoint_records": 1}
FSYNC = TopicConfig(durability=Durability.FSYNC)


async def filled(machine: Machine, config: TopicConfig = FSYNC) -> Engine:
    """45 records, each with one of three tags. One round makes five segments of them."""
    engine = await machine.start(**SMALL)
    for number in range(45):
        await engine.append("t", [record(number, tag=f"tag-{number % 3}")], config=config)
    return engine


def bounds(engine: Engine) -> list[tuple[int, int]]:
    return [(each.first_seq, each.end_seq) for each in engine.topic("t").log.held.manifest.segments]


def files(machine: Machine, engine: Engine) -> set[str]:
    """Names of the .data of the topic's segments."""
    found = machine.disk.listdir(names.folder(DATA, engine.topic("t").topic_id))
    return {name for name in found if name.endswith(names.DATA)}


async def test_a_round_fills_as_many_segments_as_there_are_records(machine: Machine) -> None:
    engine = await filled(machine)
    await engine.flusher._flush([engine.topic("t").log])
    assert bounds(engine) == [(1, 11), (11, 21), (21, 31), (31, 41), (41, 46)]
    assert [each.sealed for each in engine.topic("t").log.held.manifest.segments] == [True] * 4 + [False]
    await engine.append("t", [record(45)])
    await engine.flusher.flush_all()
    for again in (machine.cut_power, machine.restart):
        engine = await again(**SMALL)
        assert bounds(engine)[-1] == (41, 47)
        assert await seqs(engine, "t") == [*range(1, 47)]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), SegmentBroken("a sync failed")], ids=["full", "sync"])
@pytest.mark.parametrize("bad", [11, 21, 41])
async def test_segments_before_a_failed_segment_count_and_later_files_are_removed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, bad: int, error: Exception
) -> None:
    engine = await filled(machine)

    def failing(fs: Any, wal: Any, shard: int, job: Copy, lock: Any) -> Copied:
        done = copy_anew(fs, wal, shard, job, lock)
        if job.id.first_seq == bad:
            raise error
        return done

    monkeypatch.setattr(flusher, "copy_anew", failing)
    log = engine.topic("t").log
    await engine.flusher._flush([log])
    assert log.held.flushed == bad - 1
    assert log.held.written == []
    whole = {names.file_name(first_seq, 0, names.DATA) for first_seq, end_seq in bounds(engine) if end_seq > first_seq}
    assert files(machine, engine) == whole
    assert await seqs(engine, "t") == [*range(1, 46)]
    monkeypatch.setattr(flusher, "copy_anew", copy_anew)
    await engine.flusher.flush_all()
    assert bounds(engine) == [(1, 11), (11, 21), (21, 31), (31, 41), (41, 46)]
    engine = await machine.cut_power(**SMALL)
    assert await seqs(engine, "t") == [*range(1, 46)]


async def test_when_the_first_segment_fails_no_segment_counts(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await filled(machine)

    def failing(*_: object) -> Copied:
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr(engine.flusher, "_append", failing)
    log = engine.topic("t").log
    await engine.flusher._flush([log])
    assert (log.held.flushed, log.held.written, bounds(engine)) == (0, [], [(1, 1)])
    assert files(machine, engine) == set()


@pytest.mark.parametrize("loss", [Loss.DROP, None])
async def test_records_deleted_before_the_marks_are_written_stay_deleted(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, loss: Loss | None
) -> None:
    engine = await filled(machine)
    say, rounds = engine.flusher._write_frames, 0

    async def meanwhile(log: Any, values: Any) -> None:
        nonlocal rounds
        if len(values) > 1:
            rounds += 1
            await engine.delete_records("t", match=TagMatch(b"tag-1"))
            await engine.snapshotter.take()
        await say(log, values)

    monkeypatch.setattr(engine.flusher, "_write_frames", meanwhile)
    await engine.flusher.flush_all()
    assert rounds == 1
    left = [seq for seq in range(1, 46) if seq % 3 != 2]
    assert await seqs(engine, "t") == left
    for _ in range(2):
        engine = await (machine.cut_power(loss, **SMALL) if loss else machine.kill(**SMALL))
        assert await seqs(engine, "t") == left
        assert engine.state("t").count == len(left)


async def test_files_left_by_a_crash_before_the_frames_are_removed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await filled(machine)

    async def killed(*_: object) -> None:
        raise InterruptedError

    monkeypatch.setattr(engine.flusher, "_write_run", killed)
    with pytest.raises(InterruptedError):
        await engine.flusher._flush([engine.topic("t").log])
    assert len(files(machine, engine)) == 5
    engine = await machine.cut_power(Loss.KEEP, **SMALL)
    assert files(machine, engine) <= {names.file_name(1, 0, names.DATA)}
    assert await seqs(engine, "t") == [*range(1, 46)]
    await engine.flusher.flush_all()
    assert bounds(engine) == [(1, 11), (11, 21), (21, 31), (31, 41), (41, 46)]


async def test_each_new_segment_keeps_the_sizes_that_a_floor_needs(machine: Machine) -> None:
    engine = await filled(machine, TopicConfig(durability=Durability.FSYNC, cap_records=1000))
    await engine.flusher.flush_all()
    details = [each.details for each in engine.topic("t").log.held.manifest.segments]
    assert [len(each.payloads) for each in details if each is not None] == [10, 10, 10, 10, 5]
    assert [len(each.stamps) for each in details if each is not None] == [10, 10, 10, 10, 5]


async def test_files_with_names_that_are_not_durable_do_not_count(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await filled(machine)
    log, sync_dir = engine.topic("t").log, machine.disk.sync_dir
    folder = names.folder(DATA, log.topic_id)

    def failing(path: str) -> None:
        made = names.path(DATA, SegmentId(log.topic_id, 11), names.DATA)
        if path == folder and machine.disk.exists(made):
            raise OSError(errno.EIO, "no")
        sync_dir(path)

    monkeypatch.setattr(machine.disk, "sync_dir", failing)
    await engine.flusher._flush([log])
    assert bounds(engine) == [(1, 11), (11, 11)]
    monkeypatch.undo()
    await engine.flusher.flush_all()
    assert bounds(engine) == [(1, 11), (11, 21), (21, 31), (31, 41), (41, 46)]
    engine = await machine.cut_power(Loss.DROP, **SMALL)
    assert await seqs(engine, "t") == [*range(1, 46)]


async def test_one_thread_at_a_time_copies_frames_while_others_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    working = [0]
    most = [0]
    syncing = threading.Barrier(2, timeout=10)
    to_segment, datasync = kernel.to_segment, writer.datasync

    def seen(*arguments: Any, **named: Any) -> Any:
        working[0] += 1
        most[0] = max(most[0], working[0])
        time.sleep(0.001)  # gives the interpreter to the other threads
        working[0] -= 1
        return to_segment(*arguments, **named)

    def together(file: Any, path: str) -> None:
        if path.endswith(names.DATA) and syncs.pop(path, None):
            syncing.wait()  # until another thread syncs its own file
        datasync(file, path)

    async with Engine.open(tmp_path / "data", Options(segment_max_events=10, checkpoint_records=1 << 30)) as engine:
        for number in range(45):
            await engine.append("t", [record(number)], config=FSYNC)
        log = engine.topic("t").log
        syncs = {
            names.path(engine.path, SegmentId(log.topic_id, first_seq), names.DATA): True for first_seq in (11, 21)
        }
        monkeypatch.setattr(kernel, "to_segment", seen)
        monkeypatch.setattr(writer, "datasync", together)
        await engine.flusher._flush([log])
        assert bounds(engine) == [(1, 11), (11, 21), (21, 31), (31, 41), (41, 46)]
    assert (most[0], syncs) == (1, {})
