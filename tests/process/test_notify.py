"""Messages to the service manager over a real socket. Without a socket, or with a closed one, there are none."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.telemetry import EXTEND, Notifier
from tests.support.broker_process import BrokerProcess

PATIENCE_S = 120


class Listener:
    """Records the messages it gets."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address.replace("@", "\0", 1))
        self._socket.settimeout(PATIENCE_S)

    def next(self) -> list[str]:
        return self._socket.recv(4096).decode().splitlines()

    def until(self, line: str) -> list[list[str]]:
        """All messages up to the datagram with that line."""
        found = [self.next()]
        while line not in found[-1]:
            found.append(self.next())
        return found

    def forget(self) -> None:
        """Drop the messages that have not been read yet."""
        self._socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                self._socket.recv(4096)
        self._socket.settimeout(PATIENCE_S)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def listener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Listener]:
    address = str(tmp_path / "notify") if request.param == "path" else f"@topics-{os.getpid()}-{id(request)}"
    listener = Listener(address)
    yield listener
    listener.close()


def test_the_service_manager_is_notified_from_recovery_to_stop(
    listener: Listener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", listener.address)
    monkeypatch.setenv("WATCHDOG_USEC", "400000")
    with BrokerProcess(tmp_path) as broker:
        broker.launch()
        told = listener.until("READY=1")
        assert told[0][0].startswith("STATUS=Recovering: ")
        assert all(EXTEND in lines and "WATCHDOG=1" in lines for lines in told[:-1])
        broker.wait_listening()
        assert told[-1] == ["READY=1", f"STATUS=Serving at http://127.0.0.1:{broker.port}."]
        assert broker.call("GET", "/v0/ready")[0] == 200
        begin = time.monotonic()
        listener.forget()
        assert [listener.next() for _ in range(6)] == [["WATCHDOG=1"]] * 6
        assert time.monotonic() - begin > 0.4  # two in each WATCHDOG_USEC, and not many more
        broker.signal(signal.SIGTERM)
        told = listener.until("STOPPING=1")
        assert told[:-1] == [["WATCHDOG=1"]] * (len(told) - 1)
        assert told[-1] == ["STOPPING=1", "STATUS=Stopping.", EXTEND]
        assert broker.wait() == 0
        assert broker.complaints() == []


def test_a_long_drain_extends_the_timeout_repeatedly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = Listener(f"@topics-drain-{os.getpid()}")
    monkeypatch.setenv("NOTIFY_SOCKET", listener.address)
    with BrokerProcess(tmp_path, drain_ms=60_000) as broker:
        broker.start()
        broker.signal(signal.SIGTERM)
        listener.until("STOPPING=1")
        assert [listener.next() for _ in range(2)] == [[EXTEND]] * 2
        broker.signal(signal.SIGTERM)
        assert broker.wait() == 0
    listener.close()


@pytest.mark.parametrize(
    "address",
    ["", "@", "/none/there/socket", "@topics-nobody-listens", "relative", "/" + "x" * 300, "/dev/null", "vsock:2"],
)
def test_a_broker_starts_when_the_notify_socket_has_no_listener(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    monkeypatch.setenv("WATCHDOG_USEC", "not a number")
    with BrokerProcess(tmp_path) as broker:
        broker.start()
        assert broker.stop() == 0
        assert broker.complaints() == []


def test_a_manager_that_does_not_read_does_not_delay_the_broker() -> None:
    listener = Listener(f"@topics-full-{os.getpid()}")
    notifier = Notifier(listener.address)
    for _ in range(5000):
        notifier.notify("STATUS=" + "x" * 1000)
    listener.close()
    notifier.notify("STATUS=gone")
    Notifier("/a\0b").notify("STATUS=x")


@pytest.mark.parametrize(
    ("given", "watchdog_s"),
    [
        ({"WATCHDOG_USEC": "2000000"}, 2.0),
        ({"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": str(os.getpid())}, 2.0),
        ({"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "-1"}, None),
        ({"WATCHDOG_USEC": "9" * 40}, None),
        ({"WATCHDOG_USEC": "²"}, None),
        ({}, None),
    ],
)
def test_notify_variables_are_removed_from_the_environment(given: dict[str, str], watchdog_s: float | None) -> None:
    environment = {"NOTIFY_SOCKET": "@x", "OTHER": "y", **given}
    notifier = Notifier.taken_from(environment)
    assert environment == {"OTHER": "y"}
    assert notifier._watchdog_s == watchdog_s  # pyright: ignore[reportPrivateUsage]
