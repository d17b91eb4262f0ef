"""fake-gcs-server, an emulator of Google Cloud Storage, built once by Go into the cache outside the tree.

obstore uses Google's XML API, and of that the emulator has all but PUT. So a server here takes obstore's requests, and
sends a PUT on as an upload of the JSON API, and all others as they are. Google documents the condition of both as the
same: the header x-goog-if-generation-match, and the parameter ifGenerationMatch. The emulator decides whether it holds.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from tests.kafka.java.programs import alone, cache
from tests.support.broker_process import PATIENCE_S, TETHER
from tests.unit.storage.cold.servers import QuietServer, answering

VERSION = "1.56.1"
#: Several hundred packages of Go.
BUILD_S = 3000
BUCKET = "clusters"
#: Of an answer, what obstore reads.
_HEADERS = ("Content-Range", "Content-Type", "ETag", "Last-Modified", "X-Goog-Generation")


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
            with answering(_translator(address)) as front:
                yield front
        else:
            yield address
    finally:
        process.kill()
        process.wait()


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


def _translator(address: str) -> type[QuietServer]:
    host = urlsplit(address).netloc

    class Translator(QuietServer):
        """Speaks with the emulator for obstore."""

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            method, path = self.command, self.path
            if method == "PUT":
                method, path = "POST", self._upload()
            sent = {"Range": self.headers["Range"]} if "Range" in self.headers else {}
            connection = http.client.HTTPConnection(host, timeout=PATIENCE_S)
            try:
                connection.request(method, path, body or None, sent)
                answer = connection.getresponse()
                content = answer.read()
            finally:
                connection.close()
            said = {name: value for name in _HEADERS if (value := answer.headers[name]) is not None}
            if self.command == "PUT" and answer.status == 200:
                stored = json.loads(content)
                said |= {"ETag": f'"{stored["etag"]}"', "X-Goog-Generation": stored["generation"]}
                content = b""
            self.send_response(answer.status)
            for name, value in said.items():
                self.send_header(name, value)
            length = answer.headers["Content-Length"] if self.command == "HEAD" else str(len(content))
            self.send_header("Content-Length", length or "0")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def _upload(self) -> str:
            """The name of the object is written in the same way in a path and in a parameter."""
            _, bucket, name = self.path.split("/", 2)
            condition = self.headers["x-goog-if-generation-match"]
            asked = "" if condition is None else f"&ifGenerationMatch={condition}"
            return f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}{asked}"

    return Translator
