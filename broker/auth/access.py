"""The permissions and limits of callers: one Access for each key, or one for all callers if there are no keys.

Source: docs/reference/api.md#keys.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Final

from broker.auth.keys import Key
from broker.auth.scopes import Scopes
from broker.scheduling import Parking
from storage import LimitReached, RequestError

#: The longest part of a name in an error.
_SHOWN_CHARS: Final = 255


class Unauthorized(RequestError):
    """This needs a key: Authorization: Bearer and one of this broker's API keys."""

    code = "unauthorized"


class Forbidden(RequestError):
    """The key is valid, but does not allow this."""

    code = "forbidden"


class Access:
    """The permissions of all callers if there are no keys: nothing is refused and nothing is counted.

    `owner` identifies the key; None: there are no keys. `prefixes`: allowed beginnings of names, () = any.
    """

    owner: str | None = None
    prefixes: tuple[str, ...] = ()

    def require(self, scopes: Scopes, names: Iterable[str] = ()) -> None:
        """Raises Forbidden if a scope is missing, or the prefixes do not cover a topic or router."""

    def enter(self) -> Flight:
        """A request begins; `end` must follow. Raises LimitReached."""
        return UNCOUNTED

    def try_enter(self) -> Flight | None:
        """Like `enter`; None when too many requests are in progress."""
        return UNCOUNTED

    async def acquire(self) -> Flight:
        """Like `enter`, but waits instead of raising: first come, first served."""
        return UNCOUNTED

    @contextmanager
    def hold_stream(self) -> Generator[None]:
        """Count an event stream or a WebSocket while it is open. Raises LimitReached."""
        yield


class Flight:
    """A request in flight. This class does not count it."""

    __slots__ = ()

    def end(self) -> None:
        """The request is answered, or waits for something. May be called again."""


class _Counted(Flight):
    __slots__ = ("_caller",)

    def __init__(self, caller: KeyAccess) -> None:
        self._caller: KeyAccess | None = caller

    def end(self) -> None:
        caller, self._caller = self._caller, None
        if caller is not None:
            caller.leave()


UNCOUNTED: Final = Flight()
ANYBODY: Final = Access()


class KeyAccess(Access):
    """The permissions and limits of one key. Counting never awaits, so no race exceeds a limit."""

    def __init__(self, key: Key, *, max_inflight: int, max_streams: int) -> None:
        self.grant = key.grant
        self.number = key.number
        self.owner = f"key-{key.number}"
        self.prefixes = key.grant.prefixes
        self.inflight = 0
        self._waiters: deque[asyncio.Future[Flight]] = deque()
        self.max_inflight = max_inflight
        self.streams = Parking(
            max_streams, limit="max_sse_connections_per_key", are_there="event streams of this key are open"
        )

    def require(self, scopes: Scopes, names: Iterable[str] = ()) -> None:
        grant = self.grant
        if not scopes <= grant.scopes:
            lacking = grant.missing(scopes)
            raise Forbidden(f"This key lacks: {', '.join(lacking)}.", scopes=lacking)
        if grant.prefixes:
            for name in names:
                if not grant.covers(name):
                    shown = name[:_SHOWN_CHARS]
                    raise Forbidden("The prefixes of this key do not cover that topic or router.", name=shown)

    def enter(self) -> Flight:
        flight = self.try_enter()
        if flight is None:
            raise LimitReached(
                f"This key already has {self.max_inflight} requests in flight.",
                limit="max_inflight_per_key",
                max=self.max_inflight,
            )
        return flight

    def try_enter(self) -> Flight | None:
        if self.max_inflight and self.inflight >= self.max_inflight:
            return None
        self.inflight += 1
        return _Counted(self)

    async def acquire(self) -> Flight:
        flight = self.try_enter()
        if flight is not None:
            return flight
        waiter: asyncio.Future[Flight] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                waiter.result().end()  # the result and the cancellation came at the same time
            raise

    def leave(self) -> None:
        """A request has ended. The one that has waited longest starts at once, so that no other overtakes it."""
        self.inflight -= 1
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():  # it was not cancelled
                self.inflight += 1
                waiter.set_result(_Counted(self))
                return

    @contextmanager
    def hold_stream(self) -> Generator[None]:
        with self.streams.hold():
            yield
