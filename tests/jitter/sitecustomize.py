"""Makes a Python process slow by chance: calls to the disk, jobs of threads, what threads tell a loop.

    PYTHONPATH=tests/jitter TOPICS_TEST_JITTER_MS=25 .venv/bin/python -m pytest tests/http

Every process of such a run imports this when it starts, brokers included. A test that only holds because the disk or a
thread was quick enough fails then, which on a quiet machine it does once in thousands of runs. Without the variable
nothing is changed. Runs with more processes than cores cost little: most of the time they sleep.
"""

from __future__ import annotations

import asyncio.base_events
import concurrent.futures.thread
import os
import random
import threading
import time
from collections.abc import Callable
from typing import Any

#: At most so long; and how often, of all calls.
MS = float(os.environ.get("TOPICS_TEST_JITTER_MS", "0") or 0)
SHARE = float(os.environ.get("TOPICS_TEST_JITTER_SHARE", "0.15"))

_CALLS = ("fdatasync", "fsync", "pwritev", "rename", "replace")
_dice = random.Random()
_sleep = time.sleep  # tests may stand something else in its place


def nap(share: float = SHARE) -> None:
    if _dice.random() < share:
        _sleep(_dice.random() * MS / 1000)


def slowed(function: Callable[..., Any]) -> Callable[..., Any]:
    def slow(*arguments: Any, **more: Any) -> Any:
        nap()
        result = function(*arguments, **more)
        nap(SHARE / 2)
        return result

    return slow


def slow_the_process() -> None:
    for name in _CALLS:
        setattr(os, name, slowed(getattr(os, name)))
    work: Any = concurrent.futures.thread._WorkItem  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue, reportUnknownMemberType]
    work.run = slowed(work.run)
    threading.Thread.run = slowed(threading.Thread.run)
    loop = asyncio.base_events.BaseEventLoop
    tell = loop.call_soon_threadsafe

    def tell_late(self: Any, *arguments: Any, **more: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            nap()
        return tell(self, *arguments, **more)

    loop.call_soon_threadsafe = tell_late


if MS > 0:
    slow_the_process()
