"""A deadline that the calls of a block share. Each thread or task has its own, in a context variable."""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

from topics_client.errors import DeadlineExceeded
from topics_client.retry import Pause
from topics_client.wire import Request

#: In the time of time.monotonic.
_ENDS_S: ContextVar[float] = ContextVar("topics_client_deadline", default=math.inf)


@contextmanager
def within(seconds: float) -> Generator[None]:
    """All calls of this thread or task inside the block, by any client, share this many seconds.

    No attempt begins after the deadline, and an attempt in progress gives up if nothing arrives in the time that was
    left at its start. The call then raises DeadlineExceeded. Of nested blocks, the earliest deadline counts. Tasks that
    are started inside share the deadline; the sending of a producer and the renewal of leases do not.
    """
    with _ending(min(_ENDS_S.get(), time.monotonic() + seconds)):
        yield


@contextmanager
def lifted() -> Generator[None]:
    """For work that is begun inside and must be done whatever the deadline of its caller."""
    with _ending(math.inf):
        yield


@contextmanager
def _ending(ends_s: float) -> Generator[None]:
    token = _ENDS_S.set(ends_s)
    try:
        yield
    finally:
        _ENDS_S.reset(token)


def ends_s() -> float:
    """The deadline in the time of time.monotonic; infinity: there is none."""
    return _ENDS_S.get()


def limited(request: Request) -> Request:
    """The request of an endless answer, with the time that is left for it. Raises DeadlineExceeded if none is left."""
    ends = _ENDS_S.get()
    if ends == math.inf:
        return request
    check()
    return replace(request, limit_s=ends - time.monotonic())


def check() -> None:
    """Raises DeadlineExceeded if the deadline has passed."""
    if time.monotonic() >= _ENDS_S.get():
        raise DeadlineExceeded("The deadline has passed.")


def in_time(pause: Pause) -> Pause:
    """The pause, if it ends in time. Raises DeadlineExceeded otherwise."""
    if time.monotonic() + pause.seconds >= _ENDS_S.get():
        raise DeadlineExceeded.after(pause.error, outcome=pause.error.outcome) from pause.error
    return pause
