"""`topics backup` and `topics restore` with real brokers: under load, over kills, and from the command line."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from storage import Durability, Engine, NewRecord, Options, ReadQuery, TopicConfig
from storage.backup.restoring import restore
from storage.platform.posix import PosixFileSystem
from storage.records.values import TagMatch
from tests.conftest import is_soak
from tests.support.backup_load import State, Writer
from tests.support.broker_process import ROOT, BrokerProcess, environment, verify

#: Tiny segments that are flushed, flagged, rewritten and dropped all the time.
BUSY: dict[str, Any] = {
    "wal_shards": 3,
    "wal_file_bytes": 256 << 10,
    "wal_reserve_bytes": 32 << 10,
    "sync_point_bytes": 64 << 10,
    "snapshot_interval_ms": 200,
    "segment_max_events": 100,
    "checkpoint_records": 50,
    "checkpoint_interval_ms": 50,
}
WRITERS = 4
BACKUPS = 4
#: How many steps every writer has taken at each of them.
FEW = 5
KILLS = 5 if is_soak(os.environ) else 1


class Window(NamedTuple):
    """Steps of each writer that had been answered when a backup was requested, and begun when it ended."""

    answered: list[int]
    begun: list[int]


async def contents(directory: Path) -> State:
    """All records of a data directory, read by a separate engine."""
    async with Engine.open(directory, Options()) as engine:
        found: State = {}
        for state in engine.topics(limit=1000):
            records: dict[int, Any] = {}
            cursor = 0
            while cursor < state.head_seq:
                answer = await engine.read(state.topic, ReadQuery(from_seq=cursor, limit=1000, max_bytes=1 << 24))
                assert answer.tombstone is None, f"{state.topic}: {answer.tombstone}"
                records.update((each.seq, json.loads(each.body)["data"]) for each in answer.records)
                cursor = answer.next_from_seq
            assert len(records) == state.count
            found[state.topic] = (records, state.head_seq)
        return found


def restored(backup: Path, directory: Path, number: int = 0) -> State:
    """Restore, verify once more, and read everything."""
    restore(PosixFileSystem(), backup, directory, number=number, options=Options())
    verify(directory)
    return asyncio.run(contents(directory))


# -- an engine in this process, where the instant is known -------------------------------------------------------------


async def _write(engine: Engine, writer: Writer, stop: asyncio.Event, config: TopicConfig) -> None:
    while not stop.is_set():
        step = writer.next()
        if step.tags:
            records = [
                NewRecord(msgspec.Raw(json.dumps(each["data"]).encode()), tag=each["tag"]) for each in step.records()
            ]
            await engine.append(step.topic, records, config=config)
        else:
            match = TagMatch(step.match.encode()) if step.match else None
            await engine.delete_records(step.topic, step.before_seq or None, match)
        writer.answered = len(writer.steps)


async def _backed_up(directory: Path, backup: Path, writers: list[Writer]) -> dict[int, Window]:
    windows: dict[int, Window] = {}
    stop = asyncio.Event()
    async with Engine.open(directory, Options(**BUSY)) as engine:
        classes = [Durability.FSYNC, Durability.DISK]
        writing = [
            asyncio.create_task(_write(engine, writer, stop, TopicConfig(durability=classes[number % 2])))
            for number, writer in enumerate(writers)
        ]
        for _ in range(BACKUPS):
            await asyncio.sleep(0.4)
            while min(each.answered for each in writers) <= FEW:
                await asyncio.sleep(0.01)
            seen: list[Window] = []

            def instant(seen: list[Window] = seen) -> None:
                seen.append(Window([each.answered for each in writers], [len(each.steps) for each in writers]))

            summary = await engine.backups.take(backup, at_instant=instant)
            windows[summary.number] = seen[0]
            while not engine.housekeeping.dropped + engine.housekeeping.rewritten + engine.housekeeping.flagged:
                await asyncio.sleep(0.01)  # from the second one on, segments have changed because of the writers
        stop.set()
        await asyncio.gather(*writing)
    return windows


def test_backups_under_load_hold_exactly_the_state_at_one_instant(tmp_path: Path) -> None:
    seed = random.getrandbits(32)
    writers = [Writer(f"w{number}", seed) for number in range(WRITERS)]
    windows = asyncio.run(_backed_up(tmp_path / "data", tmp_path / "backup", writers))
    for number in sorted(windows)[-2:]:
        there = restored(tmp_path / "backup", tmp_path / f"restored-{number}", number)
        window = windows[number]
        assert min(window.answered) > FEW, "else nothing was going on"
        problems = [
            writer.problem(there, answered, begun)
            for writer, answered, begun in zip(writers, window.answered, window.begun, strict=True)
        ]
        assert not any(problems), (seed, number, problems)


# -- a broker that is killed -------------------------------------------------------------------------------------------


class Load:
    """Writers on threads. A writer whose step gets no answer takes no other."""

    def __init__(self, broker: BrokerProcess, seed: int) -> None:
        self.writers = [Writer(f"w{number}", seed) for number in range(WRITERS)]
        self._broker = broker
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(writer,)) for writer in self.writers]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def window(self) -> Window:
        return Window([each.answered for each in self.writers], [len(each.steps) for each in self.writers])

    def _run(self, writer: Writer) -> None:
        with suppress(OSError, HTTPException, AssertionError):  # killed at any moment, also during an answer
            while not self._stop.is_set():
                step = writer.next()
                if step.tags:
                    config = {"durability": "fsync"}
                    body: dict[str, Any] = {"records": step.records(), "config": config}
                    status, _ = self._broker.call("POST", f"/v0/topics/{step.topic}", body)
                else:
                    body = {"match": step.match} if step.match else {"before_seq": step.before_seq}
                    status, _ = self._broker.call("POST", f"/v0/topics/{step.topic}/delete", body)
                if status not in (200, 201):
                    return
                writer.answered = len(writer.steps)


def _begin(broker: BrokerProcess) -> None:
    status, answer = broker.call("POST", "/v0/admin/backup", {"directory": "all"})
    assert status == 200, answer


def _finished(broker: BrokerProcess) -> int:
    while True:
        _, answer = broker.call("GET", "/v0/admin/backup")
        if answer["state"] == "done":
            return answer["number"]
        assert answer["state"] == "running", answer
        time.sleep(0.005)


@pytest.mark.timeout(300)
def test_a_broker_killed_during_a_backup_leaves_a_complete_backup(tmp_path: Path) -> None:
    rng = random.Random(random.getrandbits(32))
    backup = tmp_path / "backups" / "all"
    for turn in range(KILLS):
        home = tmp_path / str(turn)
        home.mkdir()
        with BrokerProcess(home, backup_dir=tmp_path / str(turn) / "backups", **BUSY) as broker:
            backup = home / "backups" / "all"
            broker.start()
            windows: dict[int, Window] = {}
            with Load(broker, rng.getrandbits(32)) as load:
                for _ in range(2):
                    time.sleep(0.5)
                    before = load.window()
                    _begin(broker)
                    number = _finished(broker)
                    windows[number] = Window(before.answered, load.window().begun)
                time.sleep(0.2)
                before = load.window()
                _begin(broker)
                time.sleep(rng.random() * 0.08)
                broker.kill()
            windows[3] = Window(before.answered, load.window().begun)
            # The newest backup, and the one before if there is one.
            numbers = sorted(int(path.stem.partition("-")[2]) for path in backup.glob("manifest-*.json"))
            assert numbers in ([1, 2], [2, 3], [1, 2, 3])
            for number in numbers[-2:]:
                there = restored(backup, home / f"restored-{number}", number)
                window = windows[number]
                problems = [
                    writer.problem(there, answered, begun)
                    for writer, answered, begun in zip(load.writers, window.answered, window.begun, strict=True)
                ]
                assert not any(problems), (turn, number, problems)
            broker.start()
            _begin(broker)
            assert _finished(broker) >= 3
            # After the kill the engine may know steps that were never answered: the last one of each writer.
            there = restored(backup, home / "restored-last")
            problems = [writer.problem(there, writer.answered, len(writer.steps)) for writer in load.writers]
            assert not any(problems), (turn, problems)


# -- the command line --------------------------------------------------------------------------------------------------


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, backup_dir=tmp_path / "backups", wal_shards=2) as process:
        process.start()
        yield process


def topics(broker: BrokerProcess, *arguments: object) -> subprocess.CompletedProcess[str]:
    """The `topics` program."""
    return subprocess.run(
        [sys.executable, "-m", "topics_client", *map(str, arguments)],
        cwd=ROOT,
        env=environment(broker.data_dir, url=f"http://127.0.0.1:{broker.port}"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_backup_and_restore_commands_recover_all_records(broker: BrokerProcess, tmp_path: Path) -> None:
    for number in range(3):
        broker.call("POST", "/v0/topics/t", {"records": [{"data": number}]})
    first = topics(broker, "backup", "nightly")
    assert (first.returncode, first.stderr) == (0, "")
    assert f"Backup 1 is in {tmp_path}/backups/nightly" in first.stdout
    assert "1 topic" in first.stdout
    second = topics(broker, "backup", tmp_path / "backups" / "nightly", "--json")
    assert json.loads(second.stdout)["heads"] == {"t": 3}
    assert json.loads(second.stdout)["number"] == 2
    done = topics(broker, "restore", tmp_path / "backups" / "nightly", tmp_path / "new")
    assert done.returncode == 0, done.stderr
    assert "no problem" in done.stdout
    assert "head      3 of t" in done.stdout
    assert asyncio.run(contents(tmp_path / "new")) == {"t": ({1: 0, 2: 1, 3: 2}, 3)}
    assert "cluster" in topics(broker, "restore", tmp_path / "backups" / "nightly", tmp_path / "two", "--json").stdout


def test_a_refused_backup_or_restore_prints_the_reason_and_its_exit_status(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    outside = topics(broker, "backup", tmp_path / "elsewhere")
    assert (outside.returncode, outside.stdout) == (1, "")
    assert "TOPICS_BACKUP_DIR" in outside.stderr
    assert not (tmp_path / "elsewhere").exists()
    (tmp_path / "backups" / "letters").mkdir(parents=True)
    (tmp_path / "backups" / "letters" / "one").touch()
    stranger = topics(broker, "backup", "letters")
    assert (stranger.returncode, "not empty" in stranger.stderr) == (1, True)
    told = topics(broker, "backup", "letters", "--json")
    assert json.loads(told.stderr)["error"]["code"] == "invalid_request"
    live = topics(broker, "backup", tmp_path / "x", "--data-dir", broker.data_dir)
    assert (live.returncode, "in use by another process" in live.stderr) == (1, True)
    none = topics(broker, "restore", tmp_path / "elsewhere", tmp_path / "new")
    assert (none.returncode, "holds no backups" in none.stderr) == (1, True)
    as_json = topics(broker, "restore", tmp_path / "elsewhere", tmp_path / "new", "--json")
    assert json.loads(as_json.stderr)["error"]["code"] == "invalid_request"
    assert topics(broker, "backup").returncode == 2


def test_a_directory_without_a_running_broker_can_be_backed_up(broker: BrokerProcess, tmp_path: Path) -> None:
    broker.call("POST", "/v0/topics/t", {"records": [{"data": 1}]})
    broker.kill()
    done = topics(broker, "backup", tmp_path / "here", "--data-dir", broker.data_dir)
    assert done.returncode == 0, done.stderr
    assert "Backup 1 is in" in done.stdout
    assert restored(tmp_path / "here", tmp_path / "new") == {"t": ({1: 1}, 1)}
    gone = topics(broker, "backup", "nightly")
    assert gone.returncode == 3


def test_without_backup_dir_the_broker_writes_no_backup(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, wal_shards=1) as broker:
        broker.start()
        status, answer = broker.call("POST", "/v0/admin/backup", {"directory": str(tmp_path / "x")})
        assert (status, answer["error"]["code"]) == (400, "invalid_request")
        assert "TOPICS_BACKUP_DIR" in answer["error"]["message"]
        assert broker.call("GET", "/v0/admin/backup")[1]["state"] == "none"
        assert not (tmp_path / "x").exists()


def test_links_do_not_lead_out_of_backup_dir(broker: BrokerProcess, tmp_path: Path) -> None:
    (tmp_path / "backups").mkdir()
    (tmp_path / "backups" / "way-out").symlink_to(tmp_path)
    for directory in ("way-out/x", "../x", "/", "nightly/../../x"):
        status, _ = broker.call("POST", "/v0/admin/backup", {"directory": directory})
        assert status == 400, directory


def test_a_set_of_cells_is_backed_up_and_restored_into_a_larger_one(tmp_path: Path) -> None:
    names = [f"orders-{number}" for number in range(6)]
    with BrokerProcess(tmp_path, cells=2, wal_shards=1, backup_dir=tmp_path / "backups") as broker:
        broker.start()
        for name in names:
            broker.ok("POST", f"/v0/topics/{name}", {"records": [{"data": name}]})
        done = topics(broker, "backup", "nightly")
        assert (done.returncode, done.stderr) == (0, "")
        assert f"Backup 1 is in {tmp_path}/backups/nightly: 2 cells, each as of an instant from 2" in done.stdout
        assert "6 topics" in done.stdout
        found = json.loads(topics(broker, "backup", "nightly", "--json").stdout)
        assert found["heads"] == dict.fromkeys(names, 1)
        assert broker.stop() == 0
        fewer = topics(broker, "restore", tmp_path / "backups" / "nightly", tmp_path / "fewer", "--cells", 1)
        assert (fewer.returncode, "2 cells or more" in fewer.stderr) == (1, True)
        more = topics(broker, "restore", tmp_path / "backups" / "nightly", tmp_path / "more", "--cells", 3)
        assert (more.returncode, more.stderr) == (0, "")
    (tmp_path / "second").mkdir()
    with BrokerProcess(tmp_path / "second", data_dir=tmp_path / "more", cells=3, wal_shards=1) as broker:
        broker.start()
        assert [each["topic"] for each in broker.ok("GET", "/v0/topics")["topics"]] == names
        for name in names:
            [record] = broker.ok("POST", f"/v0/topics/{name}/diff", {"from_seq": 0})["records"]
            assert record["data"] == name
        assert len(broker.ok("GET", "/v0/cluster")["cells"]) == 3
        assert broker.stop() == 0
