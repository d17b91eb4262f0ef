"""Server-sent events: the answer that opens a stream, and the form of its events.

Source: docs/reference/api.md#live-reading.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from broker.api.request import Request
from broker.content import Headers, NotAcceptable, status_of, weights
from storage import ShuttingDown, StorageError
from storage.records import split

EVENT_STREAM: Final = b"text/event-stream"
HEADERS: Final[Headers] = ((b"cache-control", b"no-store"), (b"x-accel-buffering", b"no"))
#: Tells the client how long to wait before it reconnects.
RETRY: Final = b"retry: 2000\n\n"
#: The code of the `error` event when the broker stops.
SHUTTING_DOWN: Final = "server_shutting_down"
HEARTBEAT_S: Final = 15.0
#: How long a client may take to read a piece before its stream is closed.
PATIENCE_S: Final = 30.0


def check_accept(request: Request) -> None:
    """Raises NotAcceptable if the client's Accept header excludes event streams."""
    header = request.headers.get(b"accept")
    if header is None:
        return
    found = weights(header)
    if found.get("text/event-stream", found.get("text/*", found.get("*/*", 0.0))) <= 0:
        raise NotAcceptable


def event(name: str, data: dict[str, Any]) -> bytes:
    """An event without an id."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(data))


def heartbeat(now_ms: int) -> bytes:
    """A comment that shows that the connection is alive."""
    return b": hb %d\n\n" % now_ms


def topic_and_partition(address: str) -> dict[str, Any]:
    """The topic of an event or message, with its partition unless that is 0."""
    name, partition = split(address)
    return {"topic": name, "partition": partition} if partition else {"topic": name}


def error_event(error: StorageError, topic: str | None = None) -> bytes:
    """The event for an error that ends the stream, or its part for `topic`. `code` is the status that a request would
    have got, `reason` the code of the API.
    """
    code: int | str = SHUTTING_DOWN if isinstance(error, ShuttingDown) else status_of(error.code)
    detail: dict[str, Any] = {"detail": error.detail} if error.detail else {}
    named = {} if topic is None else topic_and_partition(topic)
    return event("error", {"code": code, "error": error.message, "reason": error.code, **named, **detail})
