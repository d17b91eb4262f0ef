"""Request targets with foreign paths: no file beside or within the data directory is read, created or removed."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.support.attacks import METHODS, TARGETS, THERE, framed
from tests.support.broker_process import BrokerProcess

SECRET = b"only the owner of the machine may read this"


def ask(port: int, request: bytes) -> bytes:
    """Everything that is received until the connection ends."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(request.replace(b"host: localhost\r\n", b"host: localhost\r\nconnection: close\r\n"))
        got = b""
        while part := connection.recv(1 << 16):
            got += part
    return got


def tree(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*")}


@pytest.mark.parametrize("http", ["zttp", "httptools"])
def test_no_target_reaches_a_file_inside_or_outside_the_data_directory(tmp_path: Path, http: str) -> None:
    (tmp_path / "secret").write_bytes(SECRET)
    (tmp_path / "data").mkdir()
    with BrokerProcess(tmp_path, http=http) as broker:
        broker.start()
        broker.ok("PUT", f"/v0/topics/{THERE}")
        files = [*tree(tmp_path), "secret", "etc/passwd"]
        ways = [f"{up}{name}" for name in files[:40] for up in ("../", "..%2f", "%2e%2e/", "../../", "")]
        up = [way for way in ways if ".." in way or "%2e" in way]
        before = tree(tmp_path)
        for method in METHODS:
            for target in [*TARGETS, *(f"/docs/{way}" for way in ways), *(f"/v0/topics/{way}" for way in up[::7])]:
                got = ask(broker.port, framed(target, method))
                assert got.startswith(b"HTTP/1.1 4"), (method, target, got[:100])
                assert SECRET not in got
                assert b"root:" not in got
        assert tree(tmp_path) == before
        assert (tmp_path / "secret").read_bytes() == SECRET
        assert [each["topic"] for each in broker.ok("GET", "/v0/topics")["topics"]] == [THERE]
        assert broker.stop() == 0
        assert broker.complaints() == []
