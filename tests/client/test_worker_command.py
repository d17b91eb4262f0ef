"""`python -m topics_client worker`: logs, metrics, reloading, and error messages of one sentence."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from tests.client.real_broker import RealBroker
from tests.client.test_worker_against_broker import is_done, until
from topics_client import Client

PROGRAM = """
from topics_client import Client, Worker

worker = Worker(Client({url!r}), grace="5s")

@worker.queue("q")
async def handler(data: object) -> None:
    if data == "wrong":
        raise ValueError("a mistake")
    with open({out!r}, "a") as file:
        print({word!r}, data, file=file)
"""
Starter = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def client(broker: RealBroker) -> Generator[Client]:
    with Client(broker.url) as client:
        client.delete_topic("q")
        client.put_topic("q", type="queue", retry_backoff_ms=60_000)
        yield client


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a module `typer` that cannot be imported: workers need no extra."""
    (tmp_path / "typer.py").write_text("raise ImportError('typer')\n")
    return tmp_path


def write(folder: Path, url: str, word: str) -> None:
    path = folder / "shop.py"
    path.write_text(PROGRAM.format(url=url, out=str(folder / "out"), word=word))


def out(folder: Path) -> list[str]:
    return (folder / "out").read_text().splitlines() if (folder / "out").exists() else []


@pytest.fixture
def start(folder: Path) -> Generator[Starter]:
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: str) -> subprocess.Popen[str]:
        path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "topics_client", "worker", *arguments],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
            )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.terminate()
            process.wait(60)


def metrics(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return answer.read().decode()


def test_a_worker_of_a_module_logs_json_and_serves_metrics(
    broker: RealBroker, client: Client, folder: Path, start: Starter, unused_tcp_port: int
) -> None:
    write(folder, broker.url, "did")
    client.append("q", ["tea", "wrong"])
    process = start("shop:worker", "--log-format", "json", "--metrics-port", str(unused_tcp_port))
    until(lambda: out(folder))
    until(lambda: "handler_failed" in (folder / "log").read_text())
    until(lambda: 'topics_worker_jobs_total{queue="q",outcome="retried"} 1' in metrics(unused_tcp_port))
    found = metrics(unused_tcp_port).splitlines()
    assert 'topics_worker_jobs_total{queue="q",outcome="done"} 1' in found
    assert 'topics_worker_handler_seconds_count{queue="q"} 2' in found
    assert 'topics_worker_running{queue="q"} 0' in found
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert out(folder) == ["did tea"]
    lines = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
    assert [line["event"] for line in lines] == ["worker_started", "handler_failed", "worker_stopped"]
    failed = lines[1]
    assert (failed["level"], failed["queue"], failed["seq"], failed["deliveries"]) == ("warning", "q", 2, 1)
    assert "a mistake" in failed["exception"]


def test_changed_code_is_reloaded(broker: RealBroker, client: Client, folder: Path, start: Starter) -> None:
    write(folder, broker.url, "old")
    client.append("q", [1])
    process = start("shop:worker", "--reload")
    until(lambda: out(folder) == ["old 1"])
    (folder / "shop.py").write_text("this is no Python")
    until(lambda: "SyntaxError" in (folder / "log").read_text())
    time.sleep(0.01)
    write(folder, broker.url, "new")
    client.append("q", [2])
    until(lambda: out(folder) == ["old 1", "new 2"])
    until(lambda: is_done(client))
    process.terminate()
    assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("shop", "is not MODULE:NAME"),
        ("nothing:worker", "There is no module nothing"),
        ("shop:handler", "is not a Worker"),
        ("shop:other", "is not a Worker"),
    ],
)
def test_mistakes_are_reported_in_a_sentence(
    broker: RealBroker, folder: Path, start: Starter, name: str, said: str
) -> None:
    write(folder, broker.url, "x")
    assert start(name).wait(60) == 2
    text = (folder / "log").read_text()
    assert text.startswith("Error: ")
    assert said in text
    assert text.count("\n") == 1


def test_a_refusal_by_the_broker_is_reported_in_a_sentence(
    broker: RealBroker, client: Client, folder: Path, start: Starter
) -> None:
    write(folder, broker.url, "x")
    client.delete_topic("q")
    assert start("shop:worker").wait(60) == 1
    assert "Error: " in (folder / "log").read_text()
