"""Servers for the tests of object stores. One works; the others stay silent, leak credentials or stall."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app  # pyright: ignore[reportMissingTypeStubs]
from moto.server import ThreadedMotoServer
from werkzeug.serving import make_server

BUCKET = "tests"
KEY_ID = "AKIA0TESTKEYID"
SECRET = "v3ry/s3cret+value"
TOKEN = "tok3n-of-a-session"
_PATIENCE_S = 60


def credentials(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    """The environment with which a broker would be started."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": KEY_ID,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_SESSION_TOKEN": TOKEN,
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
    }.items():
        monkeypatch.setenv(name, value)


class _Server(ThreadedMotoServer):
    """Carries out one conditional request at a time. Without this, two of them can create the same object: threads
    change between the look and the put."""

    def _server_entry(self) -> None:
        app, lock = DomainDispatcherApplication(create_backend_app), threading.Lock()

        def one_create_at_a_time(environ: Any, start_response: Any) -> Any:
            with lock if "HTTP_IF_NONE_MATCH" in environ else contextlib.nullcontext():
                return app(environ, start_response)

        self._server = make_server(
            self._ip_address, self._port, one_create_at_a_time, True, request_handler=MotoRequestHandler
        )
        self._server_ready_event.set()
        self._server.serve_forever()


@contextlib.contextmanager
def s3_server() -> Iterator[str]:
    """An S3 in this process, with one empty bucket. Yields its endpoint. One at a time."""
    server = _Server(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        httpx.post(
            f"{endpoint}/moto-api/reset", timeout=_PATIENCE_S
        ).raise_for_status()  # all servers of a process have the same buckets
        httpx.put(f"{endpoint}/{BUCKET}", timeout=_PATIENCE_S).raise_for_status()
        yield endpoint
    finally:
        server.stop()


def azure_credentials(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    """The same for Azure Blob Storage."""
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0")
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", f"{endpoint}/account")


def google_credentials(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    """The same for Google Cloud Storage. Without any, obstore would ask the machine for its own."""
    for name in [name for name in os.environ if name.startswith("GOOGLE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GOOGLE_BASE_URL", endpoint)
    monkeypatch.setenv("GOOGLE_BEARER_TOKEN", TOKEN)


@contextlib.contextmanager
def silent_server() -> Iterator[str]:
    """Accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextlib.contextmanager
def answering(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """A server of one handler."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


class QuietServer(BaseHTTPRequestHandler):
    """Answers every method with `answer`, and writes no log."""

    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        raise AssertionError("each subclass defines the answer")

    def do_GET(self) -> None:
        self.answer()

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass

    def send(self, status: int, body: bytes) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", "Wed, 21 Oct 2026 07:28:00 GMT")
        self.send_header("ETag", '"1"')
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class EchoingServer(QuietServer):
    """Refuses every request, and repeats its headers and a secret in the answer."""

    def answer(self) -> None:
        sent = "".join(f"<H>{name}: {value}</H>" for name, value in self.headers.items())
        self.send(403, f"<Error><Code>AccessDenied</Code><Message>{SECRET} {TOKEN}</Message>{sent}</Error>".encode())


class NoContainerServer(QuietServer):
    """Answers like Azure when there is no container of that name."""

    def answer(self) -> None:
        self.send(404, b"<Error><Code>ContainerNotFound</Code></Error>")


class BrokenServer(QuietServer):
    """Answers every request with 503 SlowDown."""

    def answer(self) -> None:
        self.send(503, b"<Error><Code>SlowDown</Code></Error>")


class StallingServer(QuietServer):
    """Announces an object and sends one byte of it; the connection stays open until the client disconnects."""

    def answer(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.send_header("Last-Modified", "Wed, 21 Oct 2026 07:28:00 GMT")
        self.send_header("ETag", '"1"')
        self.end_headers()
        self.wfile.write(b"x")
        self.wfile.flush()
        self.close_connection = True
        self.rfile.read(1)
