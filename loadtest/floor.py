"""What no broker behind HTTP can beat: a server that reads each request and throws it away.

    python -m loadtest.floor PORT_FILE

The same uvicorn, uvloop and httptools as serve the broker, with the shortest ASGI application that reads a body.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvicorn

from loadtest.own_broker import ask

ROOT = Path(__file__).resolve().parents[1]
_START_WITHIN_S = 30.0
_ANSWER = b'{"topic":"t","first_seq":1,"last_seq":1}'
_HEAD = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(_ANSWER))]}
_BODY = {"type": "http.response.body", "body": _ANSWER}


async def discard(
    scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
) -> None:
    """Read all of a request, and say that it is done."""
    while (await receive()).get("more_body"):
        pass
    await send(_HEAD)
    await send(_BODY)


class OwnFloor:
    """Such a server as a child of this process, on a free port."""

    def __init__(self) -> None:
        self._work = tempfile.TemporaryDirectory(prefix="topics-floor-")
        self._process: subprocess.Popen[bytes] | None = None
        self.host = "127.0.0.1"
        self.port = 0

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    def start(self) -> None:
        """Until it answers. Raises RuntimeError when it does not."""
        port_file = Path(self._work.name) / "port"
        self._process = subprocess.Popen([sys.executable, "-m", "loadtest.floor", str(port_file)], cwd=ROOT)
        begin = time.monotonic()
        while time.monotonic() < begin + _START_WITHIN_S and self._process.poll() is None:
            try:
                self.port = int(port_file.read_text())
                ask(self.host, self.port, "GET", "/")
            except (OSError, ValueError):
                time.sleep(0.02)
            else:
                return
        raise RuntimeError("the server without a broker did not start")

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._work.cleanup()


def main() -> None:
    config = uvicorn.Config(
        discard,  # pyright: ignore[reportArgumentType]
        host="127.0.0.1",
        port=0,
        loop="uvloop",
        http="httptools",
        lifespan="off",
        access_log=False,
        log_level="warning",
        server_header=False,
    )
    listener = config.bind_socket()
    Path(sys.argv[1]).write_text(f"{listener.getsockname()[1]}\n")
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
