"""Workers as processes that are killed, frozen and ended: every job is done at least once, and none is given up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from tests.client.real_broker import ROOT, RealBroker
from tests.client.test_worker_against_broker import acks, figures, is_done, until
from topics_client import Client

Starter = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def client(client: Client) -> Client:
    client.put_topic("q", type="queue", max_deliveries=3, dead_letter="dead")
    return client


@pytest.fixture
def start(broker: RealBroker, tmp_path: Path) -> Generator[Starter]:
    """Starts a worker that writes into `name`."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(name: str, lease: str, concurrency: int, seconds: float, *kind: str) -> subprocess.Popen[bytes]:
        given = [broker.url, "q", str(tmp_path / name), lease, str(concurrency), str(seconds), *kind]
        command = [sys.executable, "-m", "tests.client.worker_program", *given]
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path})
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()


def lines(tmp_path: Path, sign: str) -> list[int]:
    """The seqs after that sign in all files."""
    texts = [path.read_text() for path in tmp_path.iterdir()]
    return [int(line.split()[1]) for text in texts for line in text.splitlines() if line[0] == sign]


@pytest.mark.parametrize("kind", [(), ("async",)], ids=["threads", "asyncio"])
def test_the_jobs_of_a_killed_worker_are_done_by_others(
    client: Client, start: Starter, tmp_path: Path, kind: tuple[str, ...]
) -> None:
    jobs = 300
    client.append("q", list(range(jobs)))
    first = start("first", "1s", 8, 0.01, *kind)
    until(lambda: len(lines(tmp_path, "-")) > 40)
    first.kill()
    first.wait()
    start("second", "1s", 8, 0.01, *kind)
    until(lambda: is_done(client))
    assert set(lines(tmp_path, "-")) == set(range(1, jobs + 1))
    assert figures(client)[3] == 0


@pytest.mark.parametrize("kind", [(), ("async",)], ids=["threads", "asyncio"])
def test_a_worker_frozen_past_its_lease_sends_no_outcome(
    client: Client, start: Starter, tmp_path: Path, kind: tuple[str, ...]
) -> None:
    acked = acks(client)
    client.append("q", [1])
    frozen = start("frozen", "1s", 1, 60, *kind)  # it cannot end before it learns that the lease is over
    until(lambda: lines(tmp_path, "+"))
    frozen.send_signal(signal.SIGSTOP)
    start("other", "1s", 1, 1.5, *kind)
    until(lambda: len(lines(tmp_path, "+")) == 2)
    frozen.send_signal(signal.SIGCONT)
    until(lambda: is_done(client))
    until(lambda: "!" in (tmp_path / "frozen").read_text())
    assert "-" not in (tmp_path / "frozen").read_text()
    assert lines(tmp_path, "-") == [1]
    assert acks(client) - acked == 1
    assert figures(client)[3] == 0


def test_a_terminated_worker_finishes_its_running_job(client: Client, start: Starter, tmp_path: Path) -> None:
    client.append("q", [1, 2, 3])
    worker = start("w", "10s", 1, 1.0)
    until(lambda: lines(tmp_path, "+"))
    worker.terminate()
    assert worker.wait(60) == 0
    assert lines(tmp_path, "-") == [1]
    assert figures(client) == (2, 0, 0, 0)
