"""A page, the site that serves it, and a headless Chromium that opens it.

with Site() as site, LiveServer(tmp_path / "data") as broker:
    site.broker_port = broker.port
    found = visit(chromium, site, f"http://page.localhost:{site.port}", broker.url, tmp_path)

Requests of the page for other paths than its own are forwarded to the broker unchanged. To a browser this is DNS
rebinding: a name and port that were the page's and are the broker's now.
"""

from __future__ import annotations

import json
import queue
import shutil
import socket
import subprocess
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

PAGE = Path(__file__).resolve().parent / "page.html"
PATIENCE_S = 90
#: Below this path the site serves scripts.
SCRIPTS = "/files/"
#: Any name leads to this machine, and the browser contacts no other host.
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-quic",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
    "--host-resolver-rules=MAP * 127.0.0.1",
)  # fmt: skip


class Site:
    """Started by `with`. `page` is its page, `files` a folder with the page's scripts. `reports`: reports sent by
    pages. `broker_port`: requests for other paths are forwarded to this port.
    """

    def __init__(self, page: Path = PAGE, files: Path | None = None) -> None:
        self.broker_port = 0
        self.reports: queue.Queue[dict[str, Any]] = queue.Queue()
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                if self.path.startswith("/page"):
                    self._answer(page.read_bytes())
                elif files is not None and self.path.startswith(SCRIPTS):
                    self._answer((files / self.path.removeprefix(SCRIPTS)).read_bytes(), "text/javascript")
                else:
                    self._lead_on()

            def do_POST(self) -> None:
                if self.path == "/report":
                    site.reports.put(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                    self._answer(b"")
                else:
                    self._lead_on()

            def do_PUT(self) -> None:
                self._lead_on()

            def log_message(self, format: str, *args: Any) -> None:
                pass

            def _answer(self, body: bytes, content_type: str = "text/html") -> None:
                self.send_response(200)
                self.send_header("content-type", content_type)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def _lead_on(self) -> None:
                self.close_connection = True
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                if "upgrade" not in self.headers:
                    # The next request on this connection may be for the site.
                    self.headers.replace_header("connection", "close")
                lines = [self.requestline, *(f"{name}: {value}" for name, value in self.headers.items()), "", ""]
                head = "\r\n".join(lines).encode("latin-1")
                with socket.create_connection(("127.0.0.1", site.broker_port)) as upstream:
                    upstream.sendall(head + body)
                    threading.Thread(target=_pump, args=(self.connection, upstream), daemon=True).start()
                    _pump(upstream, self.connection)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]

    def origin(self, name: str) -> str:
        """The address of its pages under that name."""
        return f"http://{name}:{self.port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    """Forward bytes in both directions until either side ends; then close both."""
    with suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    for each in (source, sink):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def visit(chromium: str, site: Site, origin: str, broker: str, folder: Path) -> dict[str, Any]:
    """The page's report about the broker, from a page of that origin."""
    profile = folder / "profile"
    shutil.rmtree(profile, ignore_errors=True)
    command = [chromium, *FLAGS, f"--user-data-dir={profile}", f"{origin}/page?broker={quote(broker, safe='')}"]
    # Without a debugging port it would open the page and end. With one it stays until it is stopped.
    command.insert(-1, "--remote-debugging-port=0")
    with (folder / "chromium.log").open("wb") as log:
        browser = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        try:
            return site.reports.get(timeout=PATIENCE_S)
        except queue.Empty:
            raise AssertionError((folder / "chromium.log").read_text(errors="replace")) from None
        finally:
            browser.terminate()
            browser.wait(PATIENCE_S)
