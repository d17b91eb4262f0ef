"""A deadline that the calls of a block share. A thread or task has its own, in a context variable."""

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

#: By time.monotonic.
_ENDS_S: ContextVar[float] = ContextVar("topics_client_deadline", default=math.inf)


@contextmanager
def within(seconds: float) -> Generator[None]:
    """All calls of this thread or task inside the block, by any client, have so many seconds together.

    No try begins after that, and one that is under way gives up when nothing comes in what was left at its start: the
    call raises DeadlineExceeded. Of blocks in blocks, the one that ends first counts. Tasks that are started inside
    share the deadline; a producer's sending and the renewal of leases do not.
    """
    with _ending(min(_ENDS_S.get(), time.monotonic() + seconds)):
        yield


@contextmanager
def lifted() -> Generator[None]:
    """For what is begun inside, and has to be done whatever the deadline of its caller."""
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
    """When the deadline is, by time.monotonic; infinity: there is none."""
    return _ENDS_S.get()


def limited(request: Request) -> Request:
    """The request of an endless answer, with what is left for it. Raises DeadlineExceeded when nothing is."""
    ends = _ENDS_S.get()
    if ends == math.inf:
        return request
    check()
    return replace(request, limit_s=ends - time.monotonic())


def check() -> None:
    """Raises DeadlineExceeded when it has passed."""
    if time.monotonic() >= _ENDS_S.get():
        raise DeadlineExceeded("The deadline has passed.")


def in_time(pause: Pause) -> Pause:
    """The pause, if it ends in time. Raises DeadlineExceeded."""
    if time.monotonic() + pause.seconds >= _ENDS_S.get():
        raise DeadlineExceeded.after(pause.error, outcome=pause.error.outcome) from pause.error
    return pause
