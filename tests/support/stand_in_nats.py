"""Replaces a nats-server where there is none: the part of JetStream that the measurements use, in memory.

python -m tests.support.stand_in_nats -c CONFIG
python -m tests.support.stand_in_nats --version
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer

import msgspec

VERSION = "nats-server: v2.10.0"
STREAMS: dict[str, int] = {}


class Client(StreamRequestHandler):
    """One connection. Each message is answered to the subject that its sender names."""

    def handle(self) -> None:
        self.wfile.write(b'INFO {"server_name":"stand-in"} \r\n')
        while words := self.rfile.readline().split():
            if words[0] == b"PUB":
                subject, inbox, size = words[1:]
                payload = self.rfile.read(int(size) + 2)[:-2]
                answer = msgspec.json.encode(answered(subject.decode(), payload))
                self.wfile.write(b"MSG %b 1 %d\r\n%b\r\n" % (inbox, len(answer), answer))


def answered(subject: str, payload: bytes) -> dict[str, object]:
    """JetStream's answer to a message."""
    if not subject.startswith("$JS.API."):
        STREAMS[subject] += 1
        return {"stream": subject, "seq": STREAMS[subject]}
    verb, _, name = subject.removeprefix("$JS.API.").removeprefix("STREAM.").partition(".")
    if verb == "CREATE":
        STREAMS[name] = 0
        return {"config": msgspec.json.decode(payload)}
    if verb != "INFO" or name:
        if name not in STREAMS:
            return {"error": {"code": 404, "description": "stream not found"}}
        return {"state": {"messages": STREAMS[name] if verb == "INFO" else STREAMS.pop(name)}}
    return {"streams": len(STREAMS)}


class Server(ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128


def main() -> None:
    if sys.argv[1:] == ["--version"]:
        print(VERSION)
        return
    listen = re.search(r'listen: "(.+):(\d+)"', Path(sys.argv[2]).read_text())
    assert listen is not None
    with Server((listen[1], int(listen[2])), Client) as server:
        server.serve_forever()


if __name__ == "__main__":
    main()
