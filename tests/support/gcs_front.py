"""Speaks with fake-gcs-server for obstore, deltalake and pyarrow, and writes down what they ask: a program.

obstore and deltalake use Google's XML API, and of that the emulator has all but PUT. So a PUT is sent on as an upload,
or a copy, of the JSON API. Google documents the condition of an upload as the same in both: the header
x-goog-if-generation-match, and the parameter ifGenerationMatch. The emulator decides whether it holds. It has no
conditional copy, so that one is refused. It ignores start-after of a list, so the answer is cut here. All else is sent
on as it is; of the JSON API, which pyarrow uses, with all headers.
"""

from __future__ import annotations

import http.client
import json
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import unescape

PATIENCE_S = 120
#: Of an answer of the XML API, what the libraries read.
_HEADERS = ("Content-Range", "Content-Type", "ETag", "Last-Modified", "X-Goog-Generation")
#: The JSON API, its uploads and its downloads.
_JSON_API = ("/storage/v1/", "/upload/storage/v1/", "/download/storage/v1/")
#: Of a connection, and not of what is sent through it.
_HOP = ("connection", "content-length", "host", "transfer-encoding")


class Heard(NamedTuple):
    """A request, as the client has made it. Names of headers are in lower case."""

    method: str
    path: str
    headers: dict[str, str]


class Front(BaseHTTPRequestHandler):
    """Handles the requests of a client. `emulator`: its address. `notes`: where requests are written down."""

    protocol_version = "HTTP/1.1"
    emulator: str
    notes: Path

    def answer(self) -> None:
        given = {name.lower(): value for name, value in self.headers.items()}
        body = self._body()
        with self.notes.open("a") as file:
            file.write(json.dumps(Heard(self.command, self.path, given)) + "\n")
        method, path = self.command, self.path
        is_json = path.startswith(_JSON_API)
        if method == "PUT" and not is_json:
            is_copy = "x-goog-copy-source" in given
            if is_copy and "x-goog-if-generation-match" in given:
                self._send(501, {}, b"The emulator has no conditional copy.")
                return
            method, path = "POST", self._copy() if is_copy else self._upload()
        sent = {"Range": given["range"]} if "range" in given else {}
        if is_json:
            sent = {name: value for name, value in given.items() if name not in _HOP}
        connection = http.client.HTTPConnection(urlsplit(self.emulator).netloc, timeout=PATIENCE_S)
        try:
            connection.request(method, path, body or None, sent)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        said = {name: value for name in _HEADERS if (value := answer.headers[name]) is not None}
        if is_json:
            said = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP}
        elif self.command == "PUT" and answer.status == 200:
            stored = json.loads(content)
            said |= {"ETag": f'"{stored["etag"]}"', "X-Goog-Generation": stored["generation"]}
            content = b""
        elif start := parse_qs(urlsplit(self.path).query).get("start-after"):
            content = _after(content.decode(), start[0]).encode()
        length = answer.headers["Content-Length"] if self.command == "HEAD" else None
        self._send(answer.status, said, content, length)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_PATCH = answer

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _send(self, status: int, headers: dict[str, str], content: bytes, length: str | None = None) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", length or str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        found = b""
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return found

    def _upload(self) -> str:
        """The name of the object is written in the same way in a path and in a parameter."""
        _, bucket, name = self.path.split("/", 2)
        condition = self.headers["x-goog-if-generation-match"]
        asked = "" if condition is None else f"&ifGenerationMatch={condition}"
        return f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}{asked}"

    def _copy(self) -> str:
        places = (path.removeprefix("/").split("/", 1) for path in (self.headers["x-goog-copy-source"], self.path))
        (bucket, name), (to, target) = ((where, quote(unquote(key), safe="")) for where, key in places)
        return f"/storage/v1/b/{bucket}/o/{name}/copyTo/b/{to}/o/{target}"


def _after(listed: str, start: str) -> str:
    """The answer to a list, without objects up to `start`."""
    return re.sub(
        "<Contents>.*?<Key>(.*?)</Key>.*?</Contents>",
        lambda found: found[0] if unescape(found[1]) > start else "",
        listed,
        flags=re.DOTALL,
    )


def main(emulator: str, notes: str) -> None:
    """Serve until killed. Prints the port."""
    Front.emulator, Front.notes = emulator, Path(notes)
    Front.notes.touch()
    with ThreadingHTTPServer(("127.0.0.1", 0), Front) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
