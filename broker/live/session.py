"""Watch sessions: the topics that a client watches, and the delivered positions. Pure: time is an argument.

A session exists while it has an open stream, and `TTL_MS` longer. It is only in memory: after a restart, the client
creates a new session and sends its position as Last-Event-ID.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from typing import Final

from broker.auth import Forbidden
from broker.live.cursor import Position
from broker.live.watch_options import StreamOptions
from storage import LimitReached, RequestError

TTL_MS: Final = 300_000


class SessionNotFound(RequestError):
    """The watch session does not exist, or no longer; POST /v0/watch creates one."""

    code = "not_found"


class Session:
    """The request of POST /v0/watch. `owner` is the key that created it; None without keys."""

    __slots__ = ("options", "owner", "positions", "streams", "wid")

    def __init__(self, options: StreamOptions, positions: dict[str, Position], owner: str | None) -> None:
        self.wid = "wid_" + secrets.token_urlsafe(16)
        self.options = options
        self.owner = owner
        #: By topic: the last position that any of its streams has delivered.
        self.positions = positions
        self.streams = 0


class Sessions:
    """All sessions, at most `max` (0: no limit)."""

    def __init__(self, max: int) -> None:
        self.max = max
        self.refused_total = 0
        self._by_id: dict[str, Session] = {}
        #: When sessions without a stream expire, the earliest first.
        self._idle: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_id)

    def make(self, options: StreamOptions, positions: dict[str, Position], owner: str | None, now_ms: float) -> Session:
        """Create a session. Raises LimitReached."""
        self.collect(now_ms)
        if self.max and len(self._by_id) >= self.max:
            self.refused_total += 1
            raise LimitReached(
                f"The broker already has {self.max} watch sessions.", limit="max_watch_sessions", max=self.max
            )
        session = Session(options, positions, owner)
        self._by_id[session.wid] = session
        self._idle[session.wid] = now_ms + TTL_MS
        return session

    def find(self, wid: str, owner: str | None, now_ms: float) -> Session:
        """Find a session. Raises SessionNotFound; Forbidden if another key has created it."""
        self.collect(now_ms)
        session = self._by_id.get(wid)
        if session is None:
            raise SessionNotFound
        if session.owner != owner:
            raise Forbidden("Another key has created this session.")
        return session

    def opened(self, session: Session) -> None:
        """A stream of the session was opened; `closed` must follow."""
        session.streams += 1
        self._idle.pop(session.wid, None)

    def closed(self, session: Session, now_ms: float) -> None:
        session.streams -= 1
        if not session.streams:
            self._idle[session.wid] = now_ms + TTL_MS

    def collect(self, now_ms: float) -> None:
        """Delete expired sessions."""
        while self._idle:
            wid, until_ms = next(iter(self._idle.items()))
            if until_ms > now_ms:
                return
            del self._idle[wid], self._by_id[wid]
