"""An in-memory object store that speaks as much of S3 as the cold tier and cells in a bucket use, with delays.

    with SlowS3() as store:
        OwnBroker(settings={"COLD_DIR": store.url}, environment=store.environment)
        store.delay(0.2)        # from now on each answer takes 0.2 s
        store.faults("node-a", Faults(lost=0.3))    # of those who use that access key

It is a separate process, so that it does not compete for the interpreter lock. Requests wait side by side.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

import msgspec

from loadtest.own_broker import ask

BUCKET = "cold"
KEY_ID = "nobody"
#: A path that is no bucket: requests to it set the delay.
_DELAY = "/-delay/"
#: The same, with faults in the body and an access key in the path.
_FAULTS = "/-faults/"
_SILENCE_LOOK_S = 0.1


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """What the store does wrong. `refused`: the share of requests that are answered 500 and not carried out; `lost`:
    the share that is carried out and not answered. `silent`: nothing is carried out or answered."""

    refused: float = 0.0
    lost: float = 0.0
    silent: bool = False


class SlowS3:
    """The server process. It starts without a delay."""

    def __enter__(self) -> SlowS3:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "loadtest.slow_s3"],
            cwd=Path(__file__).resolve().parents[1],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        self._port = int(self._process.stdout.readline())
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        assert self._process.stdout is not None
        self._process.stdout.close()

    @property
    def url(self) -> str:
        """For TOPICS_COLD_DIR."""
        return f"s3://{BUCKET}/tier"

    @property
    def environment(self) -> dict[str, str]:
        """What tells the S3 client where it is."""
        return self.environment_of(KEY_ID)

    def environment_of(self, key_id: str) -> dict[str, str]:
        """The same, for a client with an access key of its own."""
        return {
            "AWS_ACCESS_KEY_ID": key_id,
            "AWS_SECRET_ACCESS_KEY": "nothing",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._port}",
        }

    def delay(self, seconds: float) -> None:
        ask("127.0.0.1", self._port, "PUT", f"{_DELAY}{seconds}")

    def faults(self, key_id: str, faults: Faults) -> None:
        """From now on, for requests with that access key."""
        ask("127.0.0.1", self._port, "PUT", f"{_FAULTS}{key_id}", msgspec.json.encode(faults))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    #: An answer is two writes, and must not wait for the first to be acknowledged.
    disable_nagle_algorithm = True

    objects: ClassVar[dict[str, bytes]] = {}
    seconds: ClassVar[list[float]] = [0.0]
    faults: ClassVar[dict[str, Faults]] = {}
    _is_lost = False

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path.startswith(_DELAY):
            self.seconds[0] = float(self.path.removeprefix(_DELAY))
        elif self.path.startswith(_FAULTS):
            self.faults[self.path.removeprefix(_FAULTS)] = msgspec.json.decode(body, type=Faults)
        else:
            if not self._goes_well():
                return
            if self.headers.get("If-None-Match") == "*":
                if self.objects.setdefault(self._key(), body) is not body:
                    self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
                    return
            else:
                self.objects[self._key()] = body
        self._answer(200, b"")

    def do_GET(self) -> None:
        if not self._goes_well():
            return
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" in query:
            self._answer(200, _listing(self.objects, query.get("prefix", [""])[0]))
            return
        found = self.objects.get(self._key())
        if found is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        wanted = self.headers.get("Range")
        if wanted is None:
            self._answer(200, found)
            return
        first, last = wanted.removeprefix("bytes=").split("-")
        part = found[int(first) : int(last) + 1 if last else None]
        self._answer(206, part, f"bytes {first}-{int(first) + len(part) - 1}/{len(found)}")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        """Delete several objects."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        if not self._goes_well():
            return
        keys = re.findall("<Key>(.*?)</Key>", body)
        for key in keys:
            self.objects.pop(f"/{BUCKET}/{unescape(key)}", None)
        deleted = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        self._answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode())

    def do_DELETE(self) -> None:
        if not self._goes_well():
            return
        self.objects.pop(self._key(), None)
        self._answer(204, b"")

    def _goes_well(self) -> bool:
        """Whether the request is to be carried out. If not, it was answered, or its connection ends."""
        time.sleep(self.seconds[0])
        found = re.search("Credential=([^/]+)/", self.headers.get("Authorization", ""))
        who = found[1] if found else KEY_ID
        while (faults := self.faults.get(who, Faults())).silent:
            time.sleep(_SILENCE_LOOK_S)
            self.close_connection = True
        if self.close_connection and self.headers.get("Connection", "") != "close":
            return False
        luck = random.random()
        if luck < faults.refused:
            self._answer(500, b"<Error><Code>InternalError</Code></Error>")
            return False
        self._is_lost = luck > 1 - faults.lost
        return True

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _key(self) -> str:
        return unquote(urlsplit(self.path).path)

    def _answer(self, status: int, body: bytes, part: str = "") -> None:
        if self._is_lost:
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", formatdate(usegmt=True))
        if part:
            self.send_header("Content-Range", part)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _listing(objects: dict[str, bytes], prefix: str) -> bytes:
    """All keys below the prefix, in one page."""
    keys = {key.removeprefix(f"/{BUCKET}/"): len(body) for key, body in sorted(objects.items())}
    entries = [
        f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>1</ETag>"
        f"<Size>{size}</Size></Contents>"
        for key, size in keys.items()
        if key.startswith(prefix)
    ]
    return f"<ListBucketResult><IsTruncated>false</IsTruncated>{''.join(entries)}</ListBucketResult>".encode()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that are killed close their connections; that is no error here."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def main() -> None:
    with _Server(("127.0.0.1", 0), _Handler) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
