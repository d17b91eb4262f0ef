"""The process that copies records into segments, when the broker that started it is killed.

It may be in the middle of a file then. Whoever opens the directory next must not meet it there.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from storage import Engine, Options, ReadQuery
from storage.errors import AlreadyLocked
from storage.platform.posix import PosixFileSystem, PosixLock
from tests.support.broker_process import PATIENCE_S, ROOT, TETHER, environment, verify

RECORDS = 300
OPTIONS = {"wal_file_bytes": 1 << 20, "wal_reserve_bytes": 1 << 16, "wal_shards": 1, "absorb_process_records": 1}

#: An engine whose copying process halts at one of its calls, until a pipe is closed; says that process's id. (One that
#: is stopped by a signal the kernel lets go on, or ends, when its parent dies.)
EMBEDDER = """
import asyncio, sys
import msgspec
from storage import Durability, Engine, NewRecord, Options, TopicConfig
from storage.platform import worker_process

root, records, options, gate, code = sys.argv[1], int(sys.argv[2]), eval(sys.argv[3]), sys.argv[4], sys.argv[5]
boot = worker_process.BOOT.rstrip()
assert boot.endswith("main()")
worker_process.BOOT = boot.removesuffix("main()") + f"def halt(): open({gate!r}).read()\\n" + code + "main()"

async def run():
    engine = Engine(root, Options(**options))
    await engine.start()
    config = TopicConfig(durability=Durability.FSYNC)
    await engine.append("t", [NewRecord(msgspec.Raw(b'{"n":%d}' % n)) for n in range(records)], config=config)
    flushing = asyncio.create_task(engine.segment_worker.flush_all())
    while engine.flusher.copying.pid is None:
        await asyncio.sleep(0.01)
    print(engine.flusher.copying.pid, flush=True)
    await flushing

asyncio.run(run())
"""

BEHIND_DATA = """
from storage.segments import writer
whole = writer.datasync
def datasync(file, path):
    whole(file, path)
    if path.endswith(".data"):
        halt()
writer.datasync = datasync
"""
AMID_DATA = """
from storage.segments import writer
whole = writer.write_all
def write_all(file, path, data, offset):
    if path.endswith(".data"):
        whole(file, path, data[:1000], offset)
        halt()
    whole(file, path, data, offset)
writer.write_all = write_all
"""


def is_gone(pid: int) -> bool:
    """Whether nothing is left of it, or nothing but its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] in (b"Z", b"X")
    except OSError:
        return True


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "nothing came of it"
        time.sleep(0.005)


class Orphan:
    """A process that halts in the middle of its work, and whose parent was killed then."""

    def __init__(self, root: Path, gate: Path, code: str) -> None:
        os.mkfifo(gate)
        self._gate = -1
        self.pid = 0
        command = [*TETHER, sys.executable, "-c", EMBEDDER, str(root), str(RECORDS), repr(OPTIONS), str(gate), code]
        parent = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment(root), cwd=ROOT)
        try:
            assert parent.stdout is not None
            self.pid = int(parent.stdout.readline())
            until(lambda: self._has_halted(gate))
        finally:
            parent.kill()
            parent.communicate()

    def _has_halted(self, gate: Path) -> bool:
        with contextlib.suppress(OSError):  # ENXIO: nobody has opened it for reading
            self._gate = os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
        return self._gate >= 0

    def go_on(self) -> None:
        gate, self._gate = self._gate, -1
        if gate >= 0:
            os.close(gate)

    def kill(self) -> None:
        if self.pid and not is_gone(self.pid):
            os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        self.kill()
        self.go_on()


@pytest.fixture(params=[AMID_DATA, BEHIND_DATA], ids=["half of .data", "no .idx"])
def orphan(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Orphan]:
    orphan = Orphan(tmp_path / "data", tmp_path / "gate", request.param)
    yield orphan
    orphan.close()


@pytest.mark.parametrize("end", [Orphan.go_on, Orphan.kill])
async def test_nobody_opens_the_directory_while_it_lives(
    orphan: Orphan, tmp_path: Path, end: Callable[[Orphan], None]
) -> None:
    root = tmp_path / "data"
    assert [len(list(root.glob(f"topics/*/*.{ext}"))) for ext in ("data", "idx")] == [1, 1]
    with pytest.raises(AlreadyLocked):
        await Engine(root, Options(**OPTIONS)).start()
    assert not is_gone(orphan.pid)
    end(orphan)
    until(lambda: is_gone(orphan.pid))
    async with Engine.open(root, Options(**OPTIONS)) as engine:
        await engine.segment_worker.flush_all()
        assert engine.catalog.topics["t"].log.held.flushed == RECORDS
        found = await engine.read("t", ReadQuery(limit=2 * RECORDS))
        assert [record.seq for record in found.records] == list(range(1, RECORDS + 1))
        assert [record.body for record in found.records] == [b'{"data":{"n":%d}}' % n for n in range(RECORDS)]
    verify(root)


async def test_a_start_right_behind_the_kill_waits_for_it(orphan: Orphan, tmp_path: Path) -> None:
    """It goes on, is through with its work in a moment, and finds that nobody wants to know."""
    fs = Waking(orphan)
    async with Engine.open(tmp_path / "data", Options(**OPTIONS), fs=fs) as engine:
        assert fs.refused
        assert is_gone(orphan.pid)
        assert engine.state("t").count == RECORDS


class Waking(PosixFileSystem):
    """Lets the process go on as soon as the lock has been refused because of it."""

    def __init__(self, orphan: Orphan) -> None:
        self._orphan = orphan
        self.refused = False

    def lock(self, path: str) -> PosixLock:
        try:
            return super().lock(path)
        except BlockingIOError:
            self.refused = True
            self._orphan.go_on()
            raise
