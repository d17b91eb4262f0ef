"""`topics bench` against a real broker."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable

import pytest
from click.testing import Result

from tests.client.real_broker import PATIENCE_S, RealBroker
from tests.client.test_cli_against_broker import start, stream
from topics_client import Client
from topics_client.commands.bench import percentile
from topics_client.commands.terminal import ExitCode

Topics = Callable[..., Result]
SHORT = ("--seconds", "0.3", "--concurrency", "2", "--batch", "7")


@pytest.mark.parametrize("load", ["append", "read", "jobs"])
def test_each_load_is_measured_and_leaves_no_topic(topics: Topics, client: Client, load: str) -> None:
    found = json.loads(topics("bench", load, *SHORT, "--json").stdout)
    assert (found["load"], found["batch"], found["concurrency"], found["durability"]) == (load, 7, 2, "disk")
    assert 0 < found["records"] <= 7 * found["calls"]
    assert found["records_per_s"] > 0
    assert 0 < found["p50_ms"] <= found["p99_ms"]
    assert list(client.list_topics()) == []


def test_without_json_the_result_is_sentences(topics: Topics, client: Client) -> None:
    result = topics("bench", "jobs", *SHORT)
    assert ("jobs/s" in result.stdout, "p99" in result.stdout, "2 at a time" in result.stderr) == (True, True, True)
    assert list(client.list_topics()) == []


def test_ctrl_c_leaves_no_topic(broker: RealBroker, client: Client) -> None:
    process = start(broker, "bench", "append", "--seconds", "300")
    stream(process.stderr).readline()  # it has begun
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == ExitCode.INTERRUPTED
    assert list(client.list_topics()) == []


def test_an_error_of_a_thread_ends_the_benchmark(topics: Topics, client: Client) -> None:
    # A body of 100 MB is more than a broker accepts.
    large = ("--size", "100000", "--batch", "1000", "--concurrency", "1")
    result = topics("bench", "append", "--seconds", "300", *large, status=ExitCode.REFUSED)
    assert "Error:" in result.stderr
    assert list(client.list_topics()) == []


def test_an_invalid_load_or_option_is_a_usage_error(topics: Topics) -> None:
    topics("bench", "x", status=ExitCode.USAGE)
    for option, value in (("--seconds", "0"), ("--concurrency", "0"), ("--batch", "1001")):
        topics("bench", "append", option, value, status=ExitCode.USAGE)


def test_a_percentile_is_an_element_of_the_values() -> None:
    values = [float(n) for n in range(1, 101)]
    assert [percentile(values, share) for share in (0.0, 0.5, 0.99, 1.0)] == [1.0, 50.0, 99.0, 100.0]
    assert (percentile([3.0], 0.99), percentile([], 0.5)) == (3.0, 0.0)
