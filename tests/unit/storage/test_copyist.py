"""The absorber's process: what it is used for, what becomes of its failures, and that nothing is left of it."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from storage import Durability, Engine, NewRecord, Options, ReadQuery, TopicConfig
from storage.format import idx_entry
from storage.format.segment_frame import decode
from storage.platform import worker_process
from storage.platform.clock import SystemClock
from storage.platform.posix import PosixFileSystem
from storage.records.values import TagMatch
from storage.segments import copier
from storage.segments.errors import SegmentCorrupt
from tests.support.sim_disk import SimDisk
from tests.unit.storage.machine import raw

LARGE = 50


class Leaping(SystemClock):
    """The machine's clock, which can be put on. It cannot stand still: writer threads wait by it for company."""

    def __init__(self) -> None:
        self._leapt_ms = 0

    def tick(self, ms: int) -> None:
        self._leapt_ms += ms

    def wall_ms(self) -> int:
        return super().wall_ms() + self._leapt_ms

    def monotonic_ns(self) -> int:
        return super().monotonic_ns() + self._leapt_ms * 1_000_000


class Bench:
    """Threads and the real disk. Turns of LARGE records or more are for the process; they come when a test says so."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = Leaping()
        self.written: dict[int, int] = {}
        self.engine = self._engine()

    def _engine(self, **changes: Any) -> Engine:
        small: dict[str, Any] = {"wal_shards": 1, "wal_file_bytes": 1 << 20, "wal_reserve_bytes": 1 << 14}
        options = Options(**{**small, "absorb_process_records": LARGE, "checkpoint_interval_ms": 3_600_000, **changes})
        return Engine(self.root, options, clock=self.clock)

    @property
    def pid(self) -> int | None:
        return self.engine.flusher.copying.pid

    async def restart(self, **changes: Any) -> None:
        await self.engine.close()
        self.engine = self._engine(**changes)
        await self.engine.start()

    async def write(self, count: int) -> None:
        first = len(self.written)
        values = range(first, first + count)
        batch = [NewRecord(raw({"n": n}), tag=f"tag-{n}") for n in values]
        done = await self.engine.append("t", batch, config=TopicConfig(durability=Durability.FSYNC))
        self.written |= dict(zip(range(done.first_seq, done.last_seq + 1), values, strict=True))

    async def mark_flushed(self) -> list[str]:
        """Everything; what was logged meanwhile."""
        with capture_logs() as logs:
            await self.engine.segment_worker.flush_all()
        return [each["event"] for each in logs]

    async def is_right(self) -> None:
        """All that was written is there, in segments, now and after a restart."""
        for _ in range(2):
            assert self.engine.catalog.topics["t"].log.held.flushed == len(self.written)
            found = await self.engine.read("t", ReadQuery(limit=10 * len(self.written)))
            assert {each.seq: each.body for each in found.records} == {
                seq: b'{"data":{"n":%d}}' % n for seq, n in self.written.items()
            }
            await self.restart()

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.root.glob("topics/*/seg-*")}


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path / "data")
    await bench.engine.start()
    yield bench
    await bench.engine.close()


def boot_with(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Processes that do this before they begin."""
    boot = worker_process.BOOT.rstrip()
    assert boot.endswith("main()")
    monkeypatch.setattr(worker_process, "BOOT", f"{boot.removesuffix('main()')}\nimport os\n{code}\nmain()")


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def test_large_turns_are_for_the_process_and_small_ones_are_not(bench: Bench) -> None:
    copying = bench.engine.flusher.copying
    used: list[tuple[int, int]] = []
    for count in (LARGE - 1, LARGE, 5, 5, LARGE + 1):
        await bench.write(count)
        assert await bench.mark_flushed() == []
        used.append((copying.copies, len(bench.engine.flusher._writers)))
    assert used == [(0, 1), (1, 0), (1, 1), (1, 1), (2, 0)], "copies it made, files that stay open here"
    assert (copying.started, copying.died) == (1, 0)
    await bench.is_right()


async def test_many_bytes_are_a_large_turn_too(bench: Bench) -> None:
    big = NewRecord(raw("x" * (LARGE << 10)))
    await bench.engine.append("t", [big], config=TopicConfig(durability=Durability.FSYNC))
    await bench.mark_flushed()
    assert bench.engine.flusher.copying.copies == 1


def without_times(files: dict[str, bytes]) -> dict[str, list[Any]]:
    """Files of one segment: each record of them, and what its entry says of it, but for when it was written."""
    (data,) = (files[name] for name in files if name.endswith(".data"))
    (idx,) = (files[name] for name in files if name.endswith(".idx"))
    entries = [entry._replace(ts=0) for entry in idx_entry.parse(idx)]
    frames = [decode(data, entry.offset)._replace(ts=0) if entry.len else None for entry in entries]
    return {"names": sorted(files), "entries": entries, "frames": frames, "bytes": [len(data)]}


async def test_it_makes_the_same_files(bench: Bench, tmp_path: Path) -> None:
    other = Bench(tmp_path / "other")
    async with Engine.open(other.root, bench.engine.options, clock=bench.clock, threaded=False) as other.engine:
        for each in (bench, other):
            for count in (2 * LARGE, 3, 2 * LARGE):
                await each.write(count)
                await each.engine.delete_records("t", before_seq=3)
                await each.engine.delete_records("t", match=TagMatch(f"tag-{len(each.written) - 2}".encode()))
                await each.mark_flushed()
        copies = [each.engine.flusher.copying.copies for each in (bench, other)]
    assert copies == [2, 0]
    assert without_times(bench.files()) == without_times(other.files())
    assert len(bench.files()) == 2


async def test_what_is_deleted_while_it_copies_stays_deleted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = bench.root.with_name("gate")
    os.mkfifo(gate)
    boot_with(
        monkeypatch,
        f"""
from storage.segments import writer
whole = writer.datasync
def datasync(file, path):
    whole(file, path)
    if path.endswith(".data"):
        open({str(gate)!r}).read()
writer.datasync = datasync
""",
    )
    await bench.write(LARGE)
    absorbing = asyncio.create_task(bench.mark_flushed())
    opened = await asyncio.get_running_loop().run_in_executor(None, os.open, gate, os.O_WRONLY)
    try:
        log = bench.engine.catalog.topics["t"].log
        assert log.held.written is not None
        assert log.wal_needed_from() is not None
        await bench.engine.delete_records("t", match=TagMatch(b"tag-7"))
    finally:
        os.close(opened)
        await absorbing
    gone = next(seq for seq, n in bench.written.items() if n == 7)
    assert log.held.flushed == LARGE
    del bench.written[gone]
    for _ in range(2):
        found = await bench.engine.read("t", ReadQuery(limit=1000))
        assert [each.seq for each in found.records] == list(bench.written)
        await bench.restart()


def dying(module: str, name: str, when: str) -> str:
    """Code that ends the process at a call: before it, or behind it, of any path or of one that ends so."""
    return f"""
from storage.segments import copy_worker, copying
from storage.segments import files, writer
whole = {module}.{name}
def {name}(*given):
    last = next((each for each in given if isinstance(each, str) and each.endswith((".data", ".idx"))), "")
    if ({when}) == "before": os._exit(3)
    result = whole(*given)
    if ({when}) == "behind": os._exit(3)
    return result
{module}.{name} = {name}
"""


DEATHS = {
    "before it begins": dying("copy_worker", "_outcome", '"before"'),
    "before it answers": dying("copy_worker", "_outcome", '"behind"'),
    "before there are files": dying("writer", "create_files", '"before"'),
    "before their names are durable": dying("writer", "create_files", '"behind"'),
    "with data not synced": dying("writer", "datasync", '"before"'),
    "with no entry": dying("writer", "datasync", '"behind"'),
    "with entries not synced": dying("writer", "datasync", '"before" if last.endswith(".idx") else ""'),
    "with one file of two": """
from storage.platform.posix import PosixFileSystem
whole = PosixFileSystem.open
def open_(self, path, **given):
    if path.endswith(".idx"): os._exit(3)
    return whole(self, path, **given)
PosixFileSystem.open = open_
""",
    "amid its answer": """
from storage.segments import copy_worker
def send(*given):
    os.write(1, b"half a mess")
    os._exit(3)
copy_worker.send = send
""",
}


@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize("before", [0, 5], ids=["new segment", "begun segment"])
async def test_a_process_that_dies_costs_time_only(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, death: str, before: int
) -> None:
    if before:
        await bench.write(before)
        await bench.mark_flushed()
    boot_with(monkeypatch, DEATHS[death])
    await bench.write(LARGE)
    logs = await bench.mark_flushed()
    dies = not (before and "create_files" in DEATHS[death])  # there is nothing to be made in a segment that was begun
    assert logs == ["copy_process_died"] * dies
    copying = bench.engine.flusher.copying
    assert (copying.started, copying.died, copying.copies) == (1, dies, not dies)
    monkeypatch.undo()
    await bench.is_right()


async def test_its_death_is_told_once_and_all_that_waited_is_done_here(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    boot_with(monkeypatch, DEATHS["before it answers"])
    names = [f"topic-{number}" for number in range(5)]
    for name in names:
        batch = [NewRecord(raw(n)) for n in range(LARGE)]
        await bench.engine.append(name, batch, config=TopicConfig(durability=Durability.FSYNC))
    assert await bench.mark_flushed() == ["copy_process_died"]
    assert (bench.engine.flusher.copying.died, bench.engine.flusher.copying.copies) == (1, 0)
    for name in names:
        assert bench.engine.catalog.topics[name].log.held.flushed == LARGE
        found = await bench.engine.read(name, ReadQuery(limit=1000))
        assert [each.body for each in found.records] == [b'{"data":%d}' % n for n in range(LARGE)]


async def test_the_next_one_comes_later_each_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    copying = bench.engine.flusher.copying
    boot_with(monkeypatch, "os._exit(3)")
    for wait_ms in (1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000, 60000):
        await bench.write(LARGE)
        with capture_logs() as logs:
            await bench.engine.segment_worker.flush_all()
        assert [(each["event"], each["retry_in_ms"]) for each in logs] == [("copy_process_died", wait_ms)]
        assert bench.pid is None
        copying._not_before_ms += 3_600_000  # however slow this machine is
        await bench.write(LARGE)
        assert await bench.mark_flushed() == [], "it is done without for a while"
        copying._not_before_ms -= 3_600_000
        bench.clock.tick(wait_ms)
    monkeypatch.undo()
    for _ in range(2):
        await bench.write(LARGE)
        assert await bench.mark_flushed() == []
    assert (copying.started, copying.died, copying.copies) == (10, 9, 2)
    assert copying._backoff_ms == 1000
    await bench.is_right()


async def test_one_that_is_killed_between_two_turns_is_noticed(bench: Bench) -> None:
    await bench.write(LARGE)
    await bench.mark_flushed()
    assert bench.pid is not None
    os.kill(bench.pid, signal.SIGKILL)
    await bench.write(LARGE)
    assert await bench.mark_flushed() == ["copy_process_died"]
    await bench.is_right()


async def test_one_that_cannot_be_started_is_done_without(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    await bench.write(LARGE)
    assert await bench.mark_flushed() == ["copy_process_not_started"]
    assert (bench.engine.flusher.copying.started, bench.engine.flusher.copying.died) == (0, 1)
    await bench.is_right()


async def test_one_that_comes_to_no_end_is_killed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copier, "_PATIENCE_S", 0.5)
    boot_with(monkeypatch, "import time\ntime.sleep(1000)")
    await bench.write(LARGE)
    absorbing = asyncio.create_task(bench.mark_flushed())
    while bench.pid is None:
        await asyncio.sleep(0.01)
    pid = bench.pid
    assert await absorbing == ["copy_process_died"]
    assert is_gone(pid)
    monkeypatch.undo()
    await bench.is_right()


async def test_it_is_ended_when_it_has_nothing_to_do(bench: Bench) -> None:
    await bench.write(LARGE)
    await bench.mark_flushed()
    pid = bench.pid
    assert pid is not None
    bench.clock.tick(copier._IDLE_MS - 30_000)
    await bench.engine.flusher.work()
    assert bench.pid == pid
    bench.clock.tick(30_000)
    await bench.engine.flusher.work()
    assert bench.pid is None
    assert is_gone(pid)
    await bench.write(LARGE)
    assert await bench.mark_flushed() == []
    assert (bench.engine.flusher.copying.started, bench.engine.flusher.copying.died) == (2, 0)
    await bench.is_right()


async def test_it_is_gone_before_the_directory_is_let_go(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await bench.write(LARGE)
    await bench.mark_flushed()
    pid = bench.pid
    assert pid is not None
    os.kill(pid, signal.SIGTERM)  # as everybody is sent who is to stop: it does not, its engine may need it yet
    await bench.write(LARGE)
    await bench.mark_flushed()
    assert bench.pid == pid
    await bench.engine.close()
    assert is_gone(pid)
    PosixFileSystem().lock(str(bench.root / ".lock")).release()
    bench.engine = bench._engine()
    await bench.engine.start()
    await bench.is_right()


async def test_one_that_does_not_end_by_itself_is_killed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.segments.copy_process._FAREWELL_S", 0.1)
    boot_with(monkeypatch, "real = main\ndef main():\n    real()\n    import time\n    time.sleep(1000)")
    await bench.write(LARGE)
    await bench.mark_flushed()
    pid = bench.pid
    assert pid is not None
    await bench.engine.close()
    assert is_gone(pid)
    await bench.restart()


def raising(error: str) -> str:
    return f"""
from storage.segments import writer
from storage.log import fetch
def write_all(*given):
    raise {error}
writer.write_all = write_all
"""


async def test_a_full_disk_there_is_a_full_disk_here(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    boot_with(monkeypatch, raising(f"OSError({errno.ENOSPC}, 'No space left on device')"))
    await bench.write(LARGE)
    assert await bench.mark_flushed() == ["flush_failed"]
    assert bench.engine.flusher.failures == 1
    assert bench.engine.flusher.copying.died == 0
    assert bench.engine.catalog.topics["t"].log.held.written is None


async def test_files_broken_there_are_given_up_here(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    boot_with(
        monkeypatch,
        "calls = []\n"
        + raising("writer.SegmentBroken('a sync failed') if not calls.append(1) else 0").replace(
            "def write_all(*given):",
            "whole = writer.write_all\ndef write_all(*given):\n    if calls: return whole(*given)",
        ),
    )
    await bench.write(LARGE)
    assert await bench.mark_flushed() == ["segment_broken"]
    await bench.mark_flushed()
    assert bench.engine.flusher.broken == 1
    assert [name for name in bench.files() if ".1." in name], "a new generation"
    await bench.is_right()


async def test_damage_found_there_is_damage_here(bench: Bench) -> None:
    await bench.write(LARGE)
    await bench.mark_flushed()
    (path,) = bench.root.glob("topics/*/*.data")
    os.truncate(path, 100)
    await bench.write(LARGE)
    with pytest.raises(SegmentCorrupt, match="were marked") as raised:
        await bench.engine.segment_worker.flush_all()
    assert (raised.value.file, raised.value.offset) == (str(path), 100)


@pytest.mark.parametrize(
    "seams", [{"threaded": False}, {"fs": SimDisk()}, {"fs": type("Other", (PosixFileSystem,), {})()}]
)
async def test_there_is_none_but_for_threads_on_the_real_disk(tmp_path: Path, seams: dict[str, Any]) -> None:
    options = Options(wal_shards=1, wal_file_bytes=1 << 20, absorb_process_records=1)
    async with Engine.open(tmp_path / "data", options, **seams) as engine:
        config = TopicConfig(durability=Durability.FSYNC)
        await engine.append("t", [NewRecord(raw(n)) for n in range(5)], config=config)
        await engine.segment_worker.flush_all()
        assert engine.catalog.topics["t"].log.held.flushed == 5
        assert (engine.flusher.copying.started, engine.flusher.copying.died) == (0, 0)


async def test_it_can_be_done_without_by_a_setting(bench: Bench) -> None:
    await bench.restart(absorb_process_records=0)
    await bench.write(LARGE)
    await bench.mark_flushed()
    assert bench.engine.flusher.copying.started == 0


async def test_metrics_tell_of_it(bench: Bench) -> None:
    def seen() -> list[float]:
        found = {family.name: family.samples[0] for family in bench.engine.metrics() if "flush_process" in family.name}
        return [found[f"topics_flush_process_{name}"].value for name in ("running", "copies", "starts", "deaths")]  # pyright: ignore

    assert seen() == [0, 0, 0, 0]
    await bench.write(LARGE)
    await bench.mark_flushed()
    assert seen() == [1, 1, 1, 0]
