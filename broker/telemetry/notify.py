"""Tells the service manager the broker's state by sd_notify(3): datagrams of NAME=value lines to $NOTIFY_SOCKET.

    recovering   STATUS, and EXTEND_TIMEOUT_USEC: a long recovery must not look like a start that hangs
    serving      READY=1 once, then nothing but the watchdog
    stopping     STOPPING=1 once, then EXTEND_TIMEOUT_USEC: a drain may take longer than the usual limit for a stop

WATCHDOG=1 is sent all the time, twice as often as $WATCHDOG_USEC requires, from the event loop: a loop that hangs sends
nothing. Without $NOTIFY_SOCKET nothing is sent. No call here raises: a broker works without a service manager.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, MutableMapping
from typing import Final

SOCKET: Final = "NOTIFY_SOCKET"
WATCHDOG_US: Final = "WATCHDOG_USEC"
WATCHDOG_PID: Final = "WATCHDOG_PID"
#: How often recovery and stop are reported; each report also asks the service manager for more time.
INTERVAL_S: Final = 1.0
PATIENCE_S: Final = 30
_US: Final = 1_000_000
EXTEND: Final = f"EXTEND_TIMEOUT_USEC={PATIENCE_S * _US}"


class Notifier:
    """`address`: a path, or @name in the abstract namespace; None: there is no service manager."""

    def __init__(self, address: str | None = None, watchdog_s: float | None = None) -> None:
        self._address = f"\0{address[1:]}" if address and address.startswith("@") else address
        self._watchdog_s = watchdog_s if address else None

    @classmethod
    def taken_from(cls, environment: MutableMapping[str, str]) -> Notifier:
        """Read and remove the service manager's variables, so that child processes do not notify for the broker."""
        address = environment.pop(SOCKET, None)
        watchdog_us, pid = environment.pop(WATCHDOG_US, ""), environment.pop(WATCHDOG_PID, "")
        for_us = pid in ("", str(os.getpid()))
        counts = watchdog_us.isascii() and watchdog_us.isdigit() and len(watchdog_us) < 20 and int(watchdog_us) > 0
        return cls(address or None, int(watchdog_us) / _US if counts and for_us else None)

    def notify(self, *lines: str) -> None:
        """Send one datagram; nothing if there is no service manager, or it does not listen."""
        if not self._address or not lines:
            return
        # ValueError: an address with a NUL in it.
        with contextlib.suppress(OSError, ValueError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto("\n".join(lines).encode(), self._address)

    async def repeat(self, state: Callable[[], list[str]]) -> None:
        """Send the lines of `state` and the watchdog's, periodically and forever; return if there is no address."""
        if not self._address:
            return
        interval_s = INTERVAL_S if self._watchdog_s is None else min(INTERVAL_S, self._watchdog_s / 2)
        beat = () if self._watchdog_s is None else ("WATCHDOG=1",)
        while True:
            self.notify(*state(), *beat)
            await asyncio.sleep(interval_s)
