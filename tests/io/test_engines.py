"""Whole engines on each backend, on the real disk: same bytes, readable by each other, fail-stop, kill -9."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from storage import Durability, Engine, NewRecord, Options, ReadQuery, TopicConfig
from storage.errors import StorageFailed
from storage.options import IoBackend
from storage.platform.io.mmap_file import MmapFile
from storage.platform.io.uring import UringFile, UringFileSystem
from storage.platform.posix import PosixFile
from tests.process.test_kill import SEGMENTS, SMALL, be_killed_again_and_again
from tests.support.backends import EACH, OTHERS, needs_io_uring
from tests.support.broker_process import BrokerProcess
from tests.support.fake_clock import FakeClock

OPTIONS = Options(
    wal_shards=2,
    wal_file_bytes=1 << 16,
    wal_reserve_bytes=4096,
    sync_point_bytes=4096,
    snapshot_interval_ms=10**9,
    checkpoint_interval_ms=10**9,
)


@pytest.fixture(params=EACH)
def backend(request: pytest.FixtureRequest) -> IoBackend:
    return request.param


def options(backend: IoBackend, **changes: Any) -> Options:
    return msgspec.structs.replace(OPTIONS, io_backend=backend, **changes)


def records(count: int, size: int, text: str) -> list[NewRecord]:
    return [NewRecord(msgspec.Raw(f'"{text}-{number}-{"x" * size}"'.encode())) for number in range(count)]


async def fill(engine: Engine, text: str) -> None:
    """All classes, groups of one and of many, small and large, over several files."""
    for durability in Durability:
        await engine.put_topic(f"{text}-{durability}", TopicConfig(durability=durability))
    for number in range(6):
        await asyncio.gather(
            *(
                engine.append(f"{text}-{durability}", records(1 + number * 5, size, f"{number}"))
                for durability in Durability
                for size in (10, 3000)
            )
        )
    await engine.append(f"{text}-fsync", records(40, 9000, "large"))
    await engine.delete_topic(f"{text}-ephemeral")


async def content(engine: Engine) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for name in sorted(engine.catalog.topics):
        seq, found[name] = 0, []
        while True:
            result = await engine.read(name, ReadQuery(from_seq=seq, limit=50))
            found[name] += [each.body for each in result.records]
            if result.next_from_seq == seq:
                break
            seq = result.next_from_seq
    return found


@needs_io_uring
async def test_a_directory_goes_from_backend_to_backend(tmp_path: Path, backend: IoBackend) -> None:
    """Written with one backend, it is opened with each other in turn, after a clean stop and as a killed process leaves
    it."""
    expected: dict[str, list[bytes]] = {}
    for number, each in enumerate([backend, *IoBackend, backend]):
        engine = Engine(tmp_path / "data", options(each))
        await engine.start()
        assert await content(engine) == expected
        await fill(engine, f"t{number}")
        expected = await content(engine)
        assert len(expected) == 3 * (number + 1)
        killed = tmp_path / f"killed-{number}"
        shutil.copytree(tmp_path / "data", killed)
        await engine.close()
        for other in IoBackend:
            copy = tmp_path / f"copy-{number}-{other}"
            shutil.copytree(killed, copy)
            found = Engine(copy, options(other))
            await found.start()
            assert await content(found) == expected, f"written by {each}, found by {other}"
            await found.close()


async def bytes_of_a_run(root: Path, backend: IoBackend) -> dict[str, bytes]:
    """Every file of the log and of the segments, during the run and after a clean stop. All runs give the same
    files."""
    engine = Engine(root, options(backend, tail_cache_bytes=0), clock=FakeClock(), threaded=False)
    await engine.start()
    await fill(engine, "t")
    await engine.segment_worker.flush_all()
    await fill(engine, "u")
    found = {f"running {name}": data for name, data in files(root).items()}
    await content(engine)
    await engine.close()
    return found | files(root)


def files(root: Path) -> dict[str, bytes]:
    paths = [path for folder in ("wal", "topics") for path in (root / folder).rglob("*") if path.is_file()]
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


@pytest.mark.parametrize("other", OTHERS)
async def test_the_bytes_on_disk_are_the_same(tmp_path: Path, other: IoBackend) -> None:
    plain = await bytes_of_a_run(tmp_path / "plain", IoBackend.FD)
    found = await bytes_of_a_run(tmp_path / "other", other)
    assert sorted(found) == sorted(plain)
    assert [name for name in plain if plain[name] != found[name]] == []
    assert sum(name.endswith(".log") for name in plain) > 4
    assert any(name.endswith(".data") for name in plain)


@needs_io_uring
async def test_the_group_goes_through_the_backend(tmp_path: Path) -> None:
    """Otherwise all of this would test the same backend three times."""
    mapped = Engine(tmp_path / "m", options(IoBackend.MMAP))
    await mapped.start()
    await mapped.append("t", records(3, 10, "x"), config=TopicConfig(durability=Durability.FSYNC))
    active = [shard.log._active for shard in mapped.shards]
    assert any(isinstance(each.file, MmapFile) and each.file._map is not None for each in active if each)
    await mapped.close()
    ring = Engine(tmp_path / "r", options(IoBackend.IO_URING))
    await ring.start()
    fs = ring.fs
    assert isinstance(fs, UringFileSystem)
    await ring.append("t", records(1, 10, "x"), config=TopicConfig(durability=Durability.FSYNC))
    before, syncs = fs.submissions, sum(shard.log.stats.fsyncs for shard in ring.shards)
    for _ in range(10):
        await ring.append("t", records(1, 10, "x"))
    assert sum(shard.log.stats.fsyncs for shard in ring.shards) == syncs + 10
    assert fs.submissions == before + 10
    await ring.close()


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
async def test_a_failed_sync_stops_the_shard_for_good(
    tmp_path: Path, backend: IoBackend, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a mapped file, an error of the device is only visible here."""

    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    engine = Engine(tmp_path, options(backend, wal_shards=1))
    await engine.start()
    await engine.append("t", records(3, 10, "safe"), config=TopicConfig(durability=Durability.FSYNC))
    safe = await content(engine)
    kind = {IoBackend.FD: PosixFile, IoBackend.MMAP: MmapFile, IoBackend.IO_URING: UringFile}[backend]
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        patch.setattr(kind, "datasync", fail)
        if kind is UringFile:
            run = UringFile._run
            patch.setattr(UringFile, "_run", lambda *arguments: ([run(*arguments)[0][0], -code], False))
        with pytest.raises(StorageFailed):
            await engine.append("t", records(3, 10, "lost"))
    with pytest.raises(StorageFailed):
        await engine.append("t", records(1, 10, "later"))
    assert [shard for shard, _ in engine.failed_shards] == [0]
    assert await content(engine) == safe
    await engine.close()
    after = Engine(tmp_path, options(backend, wal_shards=1))
    await after.start()
    assert (await content(after))["t"][:3] == safe["t"]
    await after.append("t", records(1, 10, "again"))
    await after.close()


@pytest.fixture(params=OTHERS)
def killed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, io_backend=request.param, **SMALL) as process:
        yield process


@pytest.mark.soak
@pytest.mark.timeout(1800)
async def test_acked_writes_survive_kills_under_load(killed: BrokerProcess) -> None:
    await be_killed_again_and_again(killed, random.Random(random.getrandbits(64)), 30)
    assert "io_backend_refused" not in killed.log()


@needs_io_uring
@pytest.mark.timeout(1800)
async def test_a_directory_can_change_its_backend_at_every_start_and_kill(tmp_path: Path, soak_mode: bool) -> None:
    class ChangingBackendBroker(BrokerProcess):
        """Another backend every time."""

        starts = 0

        def launch(self, **settings: object) -> None:
            self.starts += 1
            super().launch(io_backend=list(IoBackend)[self.starts % 3], **settings)

    with ChangingBackendBroker(tmp_path, **SEGMENTS) as broker:
        await be_killed_again_and_again(broker, random.Random(random.getrandbits(64)), 30 if soak_mode else 2)
        assert broker.starts >= 3
