"""The `topics` program against a real broker, which some tests kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import IO

import pytest

from tests.client.real_broker import PATIENCE_S, ROOT, RealBroker
from topics_client import Client
from topics_client.commands.terminal import ExitCode

PROGRAM = [sys.executable, "-m", "topics_client"]


@pytest.fixture
def broker(tmp_path: Path) -> Generator[RealBroker]:
    broker = RealBroker(tmp_path)
    try:
        broker.start()
        yield broker
    finally:
        broker.close()


def start(broker: RealBroker, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*PROGRAM, *arguments],
        cwd=ROOT,
        env={**os.environ, "TOPICS_URL": broker.url},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def run(broker: RealBroker, *arguments: str, stdin: bytes = b"", status: int = 0) -> bytes:
    process = start(broker, *arguments)
    out, err = process.communicate(stdin, timeout=PATIENCE_S)
    assert process.returncode == status, err.decode()
    return out


def stream(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


def test_a_tour_of_the_commands(broker: RealBroker) -> None:
    lines = b"".join(b'{"n":%d, "far":1e400, "big":123456789012345678901234567890}\n' % n for n in range(2500))
    assert b"Created t (log, durability fsync)" in run(broker, "put", "t", "--durability", "fsync")
    assert b"Appended 2,500 records to t (seqs 1 to 2500)" in run(broker, "append", "t", stdin=lines)
    again = run(broker, "append", "t", "--key-prefix", "p", stdin=lines)
    assert b"seqs 2501 to 5000" in again
    assert b"2,500 had been stored by an earlier run" in run(broker, "append", "t", "--key-prefix", "p", stdin=lines)
    read = run(broker, "read", "t", "--json", "-n", "2500").splitlines()
    assert [line.partition(b'"data":')[2] for line in read] == [line + b"}" for line in lines.splitlines()]
    assert json.loads(run(broker, "state", "t", "--json"))["head_seq"] == 5000
    assert json.loads(run(broker, "list", "--json"))["count"] == 5000
    assert json.loads(run(broker, "delete", "t", "--yes", "--json"))["deleted"] is True
    run(broker, "state", "t", status=ExitCode.REFUSED)


def test_a_record_refused_by_the_broker_is_named_by_its_line(broker: RealBroker) -> None:
    process = start(broker, "append", "t")
    _, err = process.communicate(b'1\n\n"' + b"x" * (2 << 20) + b'"\n')
    assert process.returncode == ExitCode.REFUSED
    assert b"Line 3: " in err


def test_an_append_outlives_a_kill_and_stores_each_line_once(broker: RealBroker) -> None:
    process = start(broker, "append", "t", "--batch", "1", "--json")
    given = stream(process.stdin)
    with Client(broker.url) as client:
        client.put_topic("t")
        given.write(b'"before"\n')
        given.flush()
        assert client.read("t", wait_ms=25_000).records
    broker.kill()
    given.write(b'"during"\n')
    given.flush()
    # It reports that it tries again, so the line was sent in vain by now.
    assert b"Trying again" in stream(process.stderr).readline()
    broker.start()
    out, _ = process.communicate(b'"after"\n', timeout=PATIENCE_S)
    assert process.returncode == 0
    assert json.loads(out)["records"] == 3
    with Client(broker.url) as client:
        assert [record.data for record in client.read("t").records] == ["before", "during", "after"]


def test_a_tail_continues_after_a_kill_of_the_broker(broker: RealBroker) -> None:
    run(broker, "append", "t", "-d", "1")
    process = start(broker, "tail", "t", "--json")
    shown = stream(process.stdout)
    assert json.loads(shown.readline())["data"] == 1
    broker.kill()
    broker.start()
    run(broker, "append", "t", "-d", "2")
    assert json.loads(shown.readline())["data"] == 2
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == ExitCode.INTERRUPTED


def test_a_watch_continues_after_a_kill_and_repeats_no_record(broker: RealBroker) -> None:
    for topic in ("a", "b"):
        run(broker, "append", topic, "-d", "1")
    process = start(broker, "watch", "a", "b", "--from-seq", "0", "--json")
    shown = stream(process.stdout)
    first = [json.loads(shown.readline()) for _ in range(2)]
    assert {(line["topic"], line["record"]["data"]) for line in first} == {("a", 1), ("b", 1)}
    broker.kill()
    broker.start()
    run(broker, "append", "b", "-d", "2")
    line = json.loads(shown.readline())
    assert (line["topic"], line["record"]["data"]) == ("b", 2)
    run(broker, "delete", "a", "--yes")
    assert json.loads(shown.readline()) == {"topic": "a", "deleted": True}
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == ExitCode.INTERRUPTED


def test_a_watch_for_people_stops_after_so_many(broker: RealBroker) -> None:
    run(broker, "append", "t", "-d", '"one"', "-d", '"two"', "-d", '"three"')
    shown = run(broker, "watch", "t", "--from-seq", "0", "-n", "2").decode().splitlines()
    assert [line.rpartition("  ")[2] for line in shown] == ['"one"', '"two"']


def test_serve_starts_a_broker_and_forwards_signals(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*PROGRAM, "serve", "--port", "0", "--data-dir", str(tmp_path / "data")],
        cwd=ROOT,
        env={**os.environ, "TOPICS_PORT_FILE": str(tmp_path / "port"), "TOPICS_LOG_FORMAT": "json"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    log = stream(process.stdout)
    for line in log:
        if b'"ready"' in line:
            break
    with Client(f"127.0.0.1:{(tmp_path / 'port').read_text().strip()}") as client:
        assert client.ready().status == "ready"
    process.terminate()
    log.read()
    log.close()
    assert process.wait(PATIENCE_S) == 0
    assert (tmp_path / "data" / "FORMAT").exists()
