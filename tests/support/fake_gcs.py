"""fake-gcs-server, an emulator of Google Cloud Storage, built once by Go into the cache outside the tree.

Before it is a server that knows what the libraries need and the emulator lacks (`tests/support/gcs_front.py`).
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.kafka.java.programs import alone, cache
from tests.support.broker_process import PATIENCE_S, ROOT, TETHER
from tests.support.gcs_front import Heard

VERSION = "1.56.1"
#: Several hundred packages of Go.
BUILD_S = 3000
BUCKET = "clusters"
#: The file with the requests.
HEARD = "requests"


def _built(go: str) -> Path:
    wanted = cache() / f"fake-gcs-server-{VERSION}"
    with alone(cache()):
        if not wanted.is_dir():
            made = cache() / f"fake-gcs-server-{VERSION}.part"
            done = subprocess.run(
                [go, "install", f"github.com/fsouza/fake-gcs-server@v{VERSION}"],
                env={**os.environ, "GOBIN": str(made), "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"},
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BUILD_S, check=False,
            )  # fmt: skip
            assert done.returncode == 0, f"Go could not build fake-gcs-server: {done.stderr}"
            made.rename(wanted)
    return wanted / "fake-gcs-server"


@contextmanager
def fake_gcs(go: str, folder: Path, *, translated: bool = True) -> Iterator[str]:
    """A server with one empty bucket. Yields its address. Not `translated`: the emulator's own."""
    program, log = _built(go), folder / "fake-gcs-server.log"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ["-backend", "memory", "-scheme", "http", "-host", "127.0.0.1", "-public-host", "127.0.0.1"]
    options += ["-port", str(port), "-data", str(folder / "none"), "-log-level", "warn"]
    with log.open("wb") as file:
        process = subprocess.Popen([*TETHER, str(program), *options], stdout=file, stderr=file)
    address = f"http://127.0.0.1:{port}"
    try:
        _create_bucket(address, process, log)
        if translated:
            with _front(address, folder) as front:
                yield front
        else:
            yield address
    finally:
        process.kill()
        process.wait()


@contextmanager
def _front(address: str, folder: Path) -> Iterator[str]:
    # Not in this process: pyarrow holds the interpreter while it waits for an object.
    command = [*TETHER, sys.executable, "-m", "tests.support.gcs_front", address, str(folder / HEARD)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def heard(folder: Path) -> list[Heard]:
    """The requests to a server in that folder."""
    return [Heard(*json.loads(line)) for line in (folder / HEARD).read_text().splitlines()]


def _create_bucket(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        assert process.poll() is None, log.read_text()
        try:
            made = httpx.post(f"{address}/storage/v1/b?project=tests", json={"name": BUCKET}, timeout=PATIENCE_S)
        except httpx.ConnectError:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        else:
            made.raise_for_status()
            return
