"""`topics consumers read --follow` as a separate process: records are printed as they come, until Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.client.real_broker import PATIENCE_S, RealBroker
from topics_client import Client
from topics_client.commands.terminal import ExitCode

ROOT = Path(__file__).parents[2]


@contextmanager
def following(broker: RealBroker, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """The program following consumer `c` of topic `t`; it is killed at the end if it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "topics_client", "consumers", "read", "t", "c", "--follow", "--json", *arguments],
        env={**os.environ, "TOPICS_URL": broker.url, "PYTHONUNBUFFERED": "", "PYTHONWARNINGS": "error"},
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def printed(process: subprocess.Popen[bytes], count: int) -> list[int]:
    """Data of the next records it prints; does not wait for further records."""
    assert process.stdout is not None
    return [json.loads(process.stdout.readline())["data"] for _ in range(count)]


def soon(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def interrupted(process: subprocess.Popen[bytes]) -> tuple[int, bytes, bytes]:
    """Send Ctrl-C; returns exit status and remaining output."""
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, err


@pytest.fixture
def consumer(client: Client) -> Client:
    """A client of a broker with the topic and the consumer."""
    client.put_topic("t")
    client.consumers.put("t", "c")
    return client


def test_records_are_printed_as_they_arrive_until_ctrl_c(broker: RealBroker, consumer: Client) -> None:
    with following(broker) as process:
        for number in range(3):
            consumer.append("t", [number])
            assert printed(process, 1) == [number]  # no other record comes that could push it out of a buffer
        consumer.append("t", [3, 4])
        assert printed(process, 2) == [3, 4]
        soon(lambda: consumer.consumers.get("t", "c").cursor_seq == 5)
        status, out, err = interrupted(process)
    assert status == ExitCode.INTERRUPTED
    assert out == b""
    assert b"Interrupted" in err
    assert b"Traceback" not in err


def test_a_later_process_continues_where_the_interrupted_process_ended(broker: RealBroker, consumer: Client) -> None:
    consumer.append("t", [*range(10)])
    with following(broker) as process:
        assert printed(process, 10) == [*range(10)]
        soon(lambda: consumer.consumers.get("t", "c").cursor_seq == 10)
        assert interrupted(process)[0] == ExitCode.INTERRUPTED
    consumer.append("t", [10, 11])
    with following(broker) as process:
        assert printed(process, 2) == [10, 11]
        assert interrupted(process)[0] == ExitCode.INTERRUPTED


def test_following_continues_after_a_kill_of_the_broker(broker: RealBroker, consumer: Client) -> None:
    consumer.append("t", [1])
    with following(broker) as process:
        assert printed(process, 1) == [1]
        soon(lambda: consumer.consumers.get("t", "c").durable_seq == 1)
        broker.kill()
        broker.start()
        consumer.append("t", [2])
        assert printed(process, 1) == [2]
        assert interrupted(process)[0] == ExitCode.INTERRUPTED


def test_following_ends_when_its_stdout_is_closed(broker: RealBroker, consumer: Client) -> None:
    consumer.append("t", [1])
    with following(broker) as process:
        assert printed(process, 1) == [1]
        assert process.stdout is not None
        process.stdout.close()
        consumer.append("t", [2])
        assert process.wait(PATIENCE_S) == ExitCode.BROKEN_PIPE
        assert process.stderr is not None
        assert process.stderr.read() == b""
    # Records that were not printed come again.
    assert consumer.consumers.get("t", "c").cursor_seq == 1


def test_following_an_absent_consumer_fails_and_names_the_consumer(broker: RealBroker, client: Client) -> None:
    client.put_topic("t")
    with following(broker) as process:
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == ExitCode.REFUSED
    assert b"c" in err
    assert b"Traceback" not in err
