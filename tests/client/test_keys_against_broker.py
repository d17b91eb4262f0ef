"""The client and the command with keys, against a broker that requires them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing

import pytest

from tests.support.live_server import ROOT, LiveServer
from topics_client import Client, Forbidden, RetryPolicy, Unauthorized

KEY = "sEcReT-0123456789"
QUICK = RetryPolicy(total_s=5)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[LiveServer]:
    folder = tmp_path_factory.mktemp("broker")
    with LiveServer(folder / "data", api_keys=f"{KEY},reader:r,orders:rw:orders") as server:
        yield server


def test_a_client_with_a_full_key_can_make_every_call(server: LiveServer) -> None:
    with Client(server.url, token=KEY, retry=QUICK) as client:
        client.put_topic("jobs", type="queue")
        client.append("jobs", [1])
        assert next(client.work("jobs", "n")).data == 1
        client.append("orders", [1])
        with closing(client.watch({"orders": 0})) as watch:
            assert next(watch)
        assert [topic.topic for topic in client.list_topics()] == ["jobs", "orders"]
        assert KEY not in repr(client) + repr(vars(client))
    with Client(server.url, token="orders", retry=QUICK) as client:
        assert [topic.topic for topic in client.list_topics()] == ["orders"]


@pytest.mark.parametrize("token", [None, "wRoNg"])
def test_a_client_without_a_valid_key_is_unauthorized_without_a_retry(server: LiveServer, token: str | None) -> None:
    with Client(server.url, token=token, retry=QUICK) as client:
        for call in (
            lambda: client.append("t", [1]),
            lambda: client.state("t"),
            lambda: next(client.watch({"t": 0})),
            lambda: next(client.work("t", "n")),
            lambda: next(client.tail("t")),
        ):
            with pytest.raises(Unauthorized) as refusal:
                call()
            assert "wRoNg" not in str(refusal.value)
        assert client.health()


def test_calls_outside_the_scopes_of_a_key_are_forbidden(server: LiveServer) -> None:
    with Client(server.url, token="reader", retry=QUICK) as client:
        for call in (lambda: client.append("t", [1]), lambda: client.put_topic("t"), lambda: client.delete_topic("t")):
            with pytest.raises(Forbidden):
                call()


@pytest.mark.parametrize(("token", "status"), [(KEY, 0), ("wRoNg-456", 1), (None, 1)])
def test_the_command_takes_the_key_from_the_environment_and_never_prints_the_key(
    server: LiveServer, token: str | None, status: int
) -> None:
    with Client(server.url, token=KEY, retry=QUICK) as client:
        client.append("orders", [1])
    environment = {**os.environ, "TOPICS_URL": server.url} | ({} if token is None else {"TOPICS_TOKEN": token})
    for command in (["list"], ["list", "--json"], ["list", "--help"], ["state", "orders"]):
        ended = subprocess.run(
            [sys.executable, "-m", "topics_client", *command],
            cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert ended.returncode == (0 if "--help" in command else status), ended.stderr
        assert token is None or token not in ended.stdout + ended.stderr
