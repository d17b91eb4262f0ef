"""Whether a client has hung up, as the kernel knows it."""

from __future__ import annotations

import select
from typing import Any, Final

#: It has ended its side (FIN), or both (RST).
_ENDED: Final = select.POLLRDHUP | select.POLLHUP | select.POLLERR


def has_hung_up(transport: Any) -> bool:
    """Whether the client of a connection has ended its side, read by the loop or not.

    The loop reads a request and the end behind it one after the other. After a standstill both are there, and what the
    request asks for would be granted before the end is seen. This is a call of the kernel: only for what is granted.
    """
    wire = transport.get_extra_info("socket")
    if wire is None or wire.fileno() < 0:
        return transport.is_closing()
    ends = select.poll()
    ends.register(wire.fileno(), _ENDED)
    return bool(ends.poll(0))
