"""Programs that use the client pass the strict checks of mypy and pyright: those of the guides, and one more."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.support.console import section, steps
from tests.tidy.tree import CLIENT, ROOT

PAGES = ("python", "workers")
PROGRAM = """
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from typing_extensions import assert_type

import topics_client
from topics_client import (
    Appended, AsyncClient, AsyncConsumer, AsyncProducer, Attempt, Backoff, Client, Consumer, Job, JobContext, LeaseLost,
    NewRecord, Producer, Record, RetryBudget, RetryPolicy, Tombstone, TopicsError, Worker, within,
)
from topics_client.otel import instrument


@contextmanager
def shown(attempt: Attempt) -> Generator[None]:
    yield
    print(attempt.route, attempt.status)


@dataclass
class Mail:
    to: str


def use(client: Client) -> None:
    assert_type(client.append("t", [1, NewRecord(data={}, tag="x")], expected_seq=0), Appended)
    assert_type([record for record in client.read("t", limit=3).records], list[Record])
    for item in client.tail("t"):
        assert_type(item, Record | Tombstone)
    for job in client.work("q", "me"):
        assert_type(job, Job)
        try:
            client.ack("q", "me", [job])
        except LeaseLost as lost:
            print(lost.settled and lost.settled.count)
    with Producer(client) as producer, Consumer(client, "t", "c", commit="manual") as consumer:
        assert_type(producer.send("t", 1).result().seq, int)
        for item in consumer:
            consumer.commit(item)
    worker = Worker(client)

    @worker.queue("mails", concurrency=8, lease="30s", retry=Backoff())
    def send(mail: Mail, job: JobContext) -> None:
        print(mail.to, job.deliveries)

    @worker.queue("more")
    async def more(mail: Mail) -> None:
        print(mail.to)


def main() -> None:
    with Client(cert="c", key="k", retry=RetryPolicy(), retry_budget=RetryBudget(), instrument=shown) as client:
        with within(3):
            use(client)
    try:
        Client(instrument=instrument()).check_version()
    except TopicsError as error:
        print(error.outcome, topics_client.__version__)


async def also(client: AsyncClient) -> None:
    assert_type(await client.append("t", [1]), Appended)
    async for item in client.tail("t"):
        assert_type(item, Record | Tombstone)
    async with AsyncConsumer(client, "t", "c") as consumer:
        async for item in consumer:
            await consumer.commit(item)
    async with AsyncProducer(client) as producer:
        sent = await producer.send("t", 1)
        assert_type((await sent).seq, int)
        assert_type(await sent.exception(), Exception | None)
"""
WRONG = """
from topics_client import Client

Client().append(1, [])
number: str = Client().append("t", []).last_seq
Client().put_topic("t", durabilty="fsync")
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of programs, with an environment in which the client is installed."""
    home = tmp_path_factory.mktemp("programs")
    venv.create(home / "venv", with_pip=False)
    [site] = (home / "venv").glob("lib/python*/site-packages")
    shutil.copytree(ROOT / CLIENT / "topics_client", site / "topics_client")
    # Its dependencies are those of these tests.
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    for page in PAGES:
        shown = steps(section((ROOT / f"docs/guides/{page}.md").read_text(), "examples"))
        for number, step in enumerate(step for step in shown if step.kind == "python"):
            (home / f"{page}_{number}.py").write_text(step.text)
    (home / "program.py").write_text(PROGRAM)
    (home / "wrong.py").write_text(WRONG)
    (home / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "strict", "include": ["*.py"]}))
    return home


def found(home: Path, *command: str | Path) -> dict[str, list[str]]:
    """The lines with errors, by file."""
    done = subprocess.run(
        [sys.executable, "-m", *map(str, command)], cwd=home, text=True, capture_output=True, timeout=280
    )
    errors = [line.strip() for line in done.stdout.splitlines() if " error: " in line]
    assert errors, f"{done.stdout}\n{done.stderr}"
    by_file: dict[str, list[str]] = {}
    for line in errors:
        by_file.setdefault(Path(line.partition(":")[0]).name, []).append(line)
    return by_file


def check(home: Path, errors: dict[str, list[str]]) -> None:
    assert len(list(home.glob("*.py"))) > 8
    # The wrong program shows that the types are checked at all.
    assert {line.split(":")[1] for line in errors.pop("wrong.py")} == {"4", "5", "6"}
    assert errors == {}


def test_mypy_reports_no_problem(home: Path) -> None:
    pytest.importorskip("mypy", reason="mypy is not installed: pip install -c requirements.lock mypy")
    python = home / "venv/bin/python"
    options = ("--strict", "--no-error-summary", "--python-executable", python, "--cache-dir", home / "cache")
    check(home, found(home, "mypy", *options, *sorted(home.glob("*.py"))))


def test_pyright_reports_no_problem(home: Path) -> None:
    check(home, found(home, "pyright", "--pythonpath", home / "venv/bin/python", "-p", home))
