"""An engine inside a program: how the program ends, forks and interrupts itself, and what is left then."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from storage import BinaryRecord, BlockingEngine, Engine, Options
from storage.errors import AlreadyLocked, AlreadyOpen, InvalidRequest, NotReady, ShuttingDown
from storage.state.routers.router import Definition
from tests.support.broker_process import PATIENCE_S, verify
from tests.walrus.programs import line_of, program

ENDS_WITHOUT_CLOSE = """
import sys
from storage import BlockingEngine, Durability, Options, TopicConfig

engine = BlockingEngine.open(sys.argv[1], Options(checkpoint_records=100))
for durability in ("memory", "disk", "fsync"):
    engine.put_topic(durability, TopicConfig(durability=Durability(durability)))
    engine.append_batch(durability, [b"%d" % number for number in range(1000)])
    for _ in range(10):
        engine.read_next(durability, "c")
if sys.argv[2] == "error":
    raise SystemExit("an error")
"""

INTERRUPTED = """
import sys
from storage import BlockingEngine

with BlockingEngine.open(sys.argv[1]) as engine:
    engine.append("t", "before")
    engine.read_next("t", "c")
    try:
        print("waiting", flush=True)
        engine.read_next("t", "c", wait_ms=600_000)
    except KeyboardInterrupt:
        engine.append("t", "behind")
        print(engine.read_next("t", "c").value, flush=True)
        raise
"""

FORKS = """
import os, signal, sys
from storage import BlockingEngine, Options
from storage.errors import OtherProcess

engine = BlockingEngine.open(sys.argv[1], Options())
engine.append_batch("t", [b"x" * 100] * 1000)
engine._run(engine.engine.segment_worker.flush_all)
assert engine.engine.flusher.records
if os.fork() == 0:
    try:
        engine.append("t", "from a fork")
    except OtherProcess:
        engine.close()  # is the parent's to do
        print(os.getpid(), flush=True)
    signal.pause()
sys.stdin.readline()
engine.append("t", "from the parent")
os.kill(os.getpid(), 9)
"""

APPENDS = """
import sys
from storage import BlockingEngine, Durability, TopicConfig

engine = BlockingEngine.open(sys.argv[1])
engine.put_topic("t", TopicConfig(durability=Durability(sys.argv[2])))
for batch in range(1_000_000):
    engine.append_batch("t", [b"%d/%d" % (batch, part) for part in range(23)])
    print(batch, flush=True)
"""


@pytest.mark.parametrize("how", ["quietly", "error"])
def test_a_program_that_ends_without_close_loses_no_record(data_dir: Path, how: str) -> None:
    with program(ENDS_WITHOUT_CLOSE, data_dir, how) as process:
        _, said = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, said.strip()) == ((0, "") if how == "quietly" else (1, "an error"))
    with BlockingEngine.open(data_dir) as engine:
        for name in ("memory", "disk", "fsync"):
            batch = engine.read_batch(name, "new")
            assert [record.value for record in batch] == [b"%d" % number for number in range(1000)]
            assert engine.unread(name, "c") in (1000, 990)  # at_least_once repeats what was not noted yet


def test_an_interrupt_ends_the_wait_and_not_the_engine(data_dir: Path) -> None:
    with program(INTERRUPTED, data_dir) as process:
        assert line_of(process) == "waiting"
        process.send_signal(signal.SIGINT)
        assert line_of(process) == "behind"
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == -signal.SIGINT
    with BlockingEngine.open(data_dir) as engine:
        assert engine.state("t").count == 2


def test_a_fork_can_use_no_engine_and_holds_no_directory(data_dir: Path) -> None:
    with program(FORKS, data_dir) as process:
        fork = int(line_of(process))
        try:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.wait(timeout=PATIENCE_S) == -signal.SIGKILL
            with BlockingEngine.open(data_dir) as engine:  # while the fork is alive
                assert engine.state("t").count == 1001
        finally:
            os.kill(fork, signal.SIGKILL)


@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
def test_a_kill_leaves_whole_batches_and_every_acked_record(data_dir: Path, durability: str) -> None:
    with program(APPENDS, data_dir, durability) as process:
        acked = 0
        while acked < 40:
            acked = int(line_of(process))
    with BlockingEngine.open(data_dir) as engine:
        found = [record.value for record in engine.follow("t", "c", wait_ms=0)]
    batches, rest = divmod(len(found), 23)
    assert rest == 0
    assert batches > acked
    assert found == [b"%d/%d" % (batch, part) for batch in range(batches) for part in range(23)]


def test_many_engines_run_in_one_process(data_dir: Path) -> None:
    engines = {name: BlockingEngine.keyed(name, root=data_dir) for name in ("orders", "audit", "a-b_1")}
    try:
        for name, engine in engines.items():
            engine.append("t", name)
        assert sorted(path.name for path in data_dir.iterdir()) == sorted(engines)
        for name, engine in engines.items():
            assert [record.value for record in engine.follow("t", "c", wait_ms=0)] == [name]
    finally:
        for engine in engines.values():
            engine.close()


@pytest.mark.parametrize("name", ["", "..", "a/b", "A", ".x", "a" * 65, "é"])
def test_a_key_is_no_path(data_dir: Path, name: str) -> None:
    with pytest.raises(InvalidRequest):
        BlockingEngine.keyed(name, root=data_dir)


async def test_a_directory_cannot_be_opened_twice_in_a_process(data_dir: Path) -> None:
    async with Engine.keyed("x", root=data_dir) as first:
        with pytest.raises(AlreadyOpen) as told:
            BlockingEngine.open(data_dir / "y" / ".." / "x")
        assert str(data_dir / "x") in str(told.value)
        with pytest.raises(AlreadyOpen):
            async with Engine.open(data_dir / "x"):
                pass
        await first.append("t", 1)  # nothing has happened to it
    with BlockingEngine.open(data_dir / "x") as again:
        assert again.state("t").count == 1


def test_a_directory_open_in_another_process_is_refused(data_dir: Path) -> None:
    with program(INTERRUPTED, data_dir) as process:
        assert line_of(process) == "waiting"
        with pytest.raises(AlreadyLocked) as told:
            BlockingEngine.open(data_dir)
        assert not isinstance(told.value, AlreadyOpen)


def test_a_failed_start_leaves_no_thread(data_dir: Path) -> None:
    before = threading.active_count()
    with BlockingEngine.open(data_dir):
        running = threading.active_count()
        with pytest.raises(AlreadyOpen):
            BlockingEngine.open(data_dir)
        assert threading.active_count() == running
    assert threading.active_count() == before


def test_the_loops_own_thread_is_refused(data_dir: Path) -> None:
    with BlockingEngine.open(data_dir) as engine, pytest.raises(RuntimeError, match="own thread"):
        engine._call(engine.state, "t")  # pyright: ignore[reportPrivateUsage]


def test_close_may_be_repeated(data_dir: Path) -> None:
    engine = BlockingEngine.open(data_dir, Options(wal_shards=1))
    engine.close()
    engine.close()
    with pytest.raises((ShuttingDown, NotReady)):
        engine.topics()


async def test_a_directory_with_raw_bytes_is_sound(data_dir: Path) -> None:
    async with Engine.open(data_dir) as engine:
        for name in ("source", "dest"):
            await engine.put_topic(name)
        await engine.routers.put("r", Definition(source="source", dest="dest"))
        await engine.append_batch("source", [b"\x00", b"x" * 300, {"a": 1}, BinaryRecord(b'{"data":1}', tag="t")])
        await engine.append_batch("source", [b"alike"] * 10)
        assert await engine.wait_beyond("dest", 13, 60_000)
        await engine.segment_worker.flush_all()
        await engine.append("source", b"in the log")
        assert await engine.wait_beyond("dest", 14, 60_000)
    verify(data_dir)
    async with Engine.open(data_dir) as engine:
        for name in ("source", "dest"):
            batch = await engine.read_batch(name, "c")
            assert [record.binary for record in batch] == [True, True, False] + [True] * 12
