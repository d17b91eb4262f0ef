"""Relays as processes: between two of them, a caller reaches a cell of the other node."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from broker.cells import Kind, Role, connect_relayed, relay_socket
from broker.cluster import Address, ClusterMap, Owner, write_owners
from broker.relay import read_counts

SECRET = "the secret of a cluster in a test"


@contextmanager
def relay(folder: Path, host: str = "127.0.0.1", **settings: str) -> Generator[tuple[subprocess.Popen[str], Address]]:
    """A relay that listens at a free port."""
    with socket.socket() as port:
        port.bind((host, 0))
        role = Role(set_id="s", count=2, run=str(folder), parent=os.getpid(), node=folder.name, http_fd=port.fileno())
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TOPICS_")}
        process = subprocess.Popen(
            [sys.executable, "-m", "broker.relay", "--role", msgspec.json.encode(role).decode()],
            env={**environment, **settings},
            pass_fds=[port.fileno()],
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process, Address("127.0.0.1", port.getsockname()[1])
        finally:
            process.kill()
            process.communicate()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
    writer.close()


async def test_two_relays_connect_a_caller_to_a_cell_and_end_at_a_signal() -> None:
    # The path of a socket must be short.
    with tempfile.TemporaryDirectory(prefix="r-") as first, tempfile.TemporaryDirectory(prefix="r-") as second:
        one, two = Path(first), Path(second)
        with relay(one, TOPICS_CLUSTER_SECRET=SECRET) as (a, _), relay(two, TOPICS_CLUSTER_SECRET=SECRET) as (b, there):
            server = await asyncio.start_unix_server(echo, str(two / "cell-01.http"))
            owner = Owner(node="two", generation=1, cluster=there)
            write_owners(one, ClusterMap(me="one", cells=(None, owner)))
            async with asyncio.timeout(60):
                while True:
                    try:
                        connection = await connect_relayed(one, 1, Kind.HTTP)
                        break
                    except OSError:
                        assert (a.poll(), b.poll()) == (None, None)
                        await asyncio.sleep(0.05)
                reader, writer = await asyncio.open_unix_connection(sock=connection)
                writer.write(b"hello")
                assert await reader.readexactly(5) == b"hello"
                while not read_counts(one).connected:
                    await asyncio.sleep(0.05)
                for process in (b, a):
                    process.send_signal(signal.SIGTERM)
                    assert await asyncio.to_thread(process.wait, 30) == 0
                with suppress(OSError):
                    assert await reader.read(-1) == b""
            writer.close()
            server.close()
            assert SECRET not in (a.stderr.read() if a.stderr else "")


@pytest.mark.parametrize(
    ("host", "settings"),
    [
        ("0.0.0.0", {}),
        ("127.0.0.1", {"TOPICS_CLUSTER_SECRET": "short but not to be shown"}),
        ("127.0.0.1", {"TOPICS_CLUSTER_CERT": "/nowhere.pem", "TOPICS_CLUSTER_CA": "/nowhere.pem"}),
    ],
)
def test_settings_that_cannot_be_used_end_the_process(host: str, settings: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory(prefix="r-") as top, relay(Path(top), host, **settings) as (process, _):
        _, text = process.communicate(timeout=60)
        assert process.returncode == 2
        assert "TOPICS_CLUSTER_" in text
        assert "not to be shown" not in text
        assert not relay_socket(Path(top)).exists() or host == "0.0.0.0"
