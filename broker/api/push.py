"""Sending without waiting, for callers that write to many connections and cannot wait for one of them.

uvicorn's `send` waits only at its start, until the connection has room. So a call that would wait has done nothing
yet and can be abandoned.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from broker.content import Message, Send

#: How long a client that did not read may take to read the rest before its connection is aborted.
LINGER_S: Final = 30.0


def try_send(send: Send, message: Message) -> bool:
    """Send if that is possible at once. False: nothing was sent; use `send`, which handles every case."""
    sending = send(message).__await__()
    try:
        sending.send(None)
    except StopIteration:
        return True
    except Exception:
        return False
    sending.close()
    return False


def connection_of(send: Send) -> Any:
    """The owner of an answer's memory: the transport below or, without one, `send` itself."""
    cycle: Any = getattr(send, "__self__", None)
    return getattr(cycle, "transport", None) or send


def is_full(send: Send) -> bool:
    """Whether the client has not read what was sent before."""
    flow: Any = getattr(getattr(send, "__self__", None), "flow", None)
    return flow is not None and flow.write_paused


def is_http2(send: Send) -> bool:
    """Whether `send` writes to an HTTP/2 stream, whose window may be smaller than the connection's room."""
    return hasattr(getattr(send, "__self__", None), "stream")


def drop(send: Send) -> None:
    """Give up a client that does not read: reset its stream or, over HTTP/1.1, close the connection."""
    cycle: Any = getattr(send, "__self__", None)
    if hasattr(cycle, "abort_stream"):
        cycle.abort_stream()
    elif hasattr(cycle, "transport"):
        cycle.transport.abort()


class _Open:
    """Replaces a connection's flow control and always has room."""

    write_paused = False

    async def drain(self) -> None:
        return


def send_last(send: Send, message: Message, end: Message) -> None:
    """For a client that does not read: queue the message after the data that waits for it, and end the answer.

    The rest is sent if the client reads again within `LINGER_S`. For HTTP/1.1 only: the caller resets an HTTP/2 stream
    whose window is closed, which does not affect the other streams of the connection.
    """
    cycle: Any = getattr(send, "__self__", None)
    if cycle is None or not hasattr(cycle, "keep_alive"):
        return
    cycle.flow = _Open()
    cycle.keep_alive = False
    try_send(send, message)
    try_send(send, end)
    asyncio.get_running_loop().call_later(LINGER_S, cycle.transport.abort)
