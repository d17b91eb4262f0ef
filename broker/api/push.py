"""Sending without waiting: for those who have many connections to write to and cannot wait for one of them.

uvicorn's `send` waits in one place only, before anything else: until there is room in the connection. So a call that
would wait has done nothing yet, and can be taken back.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from broker.content import Message, Send

#: How long a client that did not read may take for what is left before its connection is cut.
LINGER_S: Final = 30.0


def try_send(send: Send, message: Message) -> bool:
    """Send if that is possible at once. False: nothing was sent; send it the common way, which knows more."""
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
    """Whose memory an answer is counted to: the transport below, or what there is where there is none."""
    cycle: Any = getattr(send, "__self__", None)
    return getattr(cycle, "transport", None) or send


def is_full(send: Send) -> bool:
    """Whether the client has not taken what it was sent before."""
    flow: Any = getattr(getattr(send, "__self__", None), "flow", None)
    return flow is not None and flow.write_paused


def is_http2(send: Send) -> bool:
    """Whether it goes to a stream of HTTP/2, whose window may be smaller than the connection's room."""
    return hasattr(getattr(send, "__self__", None), "stream")


def drop(send: Send) -> None:
    """To a client that does not read: nothing more. Its stream is reset, over HTTP/1.1 the connection ends."""
    cycle: Any = getattr(send, "__self__", None)
    if hasattr(cycle, "abort_stream"):
        cycle.abort_stream()
    elif hasattr(cycle, "transport"):
        cycle.transport.abort()


class _Open:
    """Stands where a connection is asked whether there is room: there is."""

    write_paused = False

    async def drain(self) -> None:
        return


def send_last(send: Send, message: Message, end: Message) -> None:
    """To a client that does not read: put the message behind what waits for it, and end.

    What is left is sent if the client reads on within `LINGER_S`. HTTP/1.1 only: a stream of HTTP/2 whose window is
    closed is reset by those who gave it up, which takes nothing from the others on its connection.
    """
    cycle: Any = getattr(send, "__self__", None)
    if cycle is None or not hasattr(cycle, "keep_alive"):
        return
    cycle.flow = _Open()
    cycle.keep_alive = False
    try_send(send, message)
    try_send(send, end)
    asyncio.get_running_loop().call_later(LINGER_S, cycle.transport.abort)
