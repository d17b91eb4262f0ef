"""The upper limit of any broker behind HTTP: a server that reads each request and throws it away.

    python -m loadtest.floor PORT_FILE

It uses the same uvicorn, uvloop and httptools as the broker, with the shortest ASGI application that reads a body.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvicorn

from loadtest.own_broker import ask
from loadtest.own_server import OwnServer

ROOT = Path(__file__).resolve().parents[1]
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


class OwnFloor(OwnServer):
    """Such a server as a child of this process, on a free port."""

    def __init__(self) -> None:
        super().__init__("topics-floor-")

    def start(self) -> None:
        """Until it answers. Raises RuntimeError when it does not."""
        port_file = self._work / "port"

        def answers() -> None:
            self.port = int(port_file.read_text())
            ask(self.host, self.port, "GET", "/")

        command = [sys.executable, "-m", "loadtest.floor", str(port_file)]
        self._begin("the server without a broker", command, answers, cwd=ROOT)


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
