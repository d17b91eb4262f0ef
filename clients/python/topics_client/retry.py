"""When to try again, and how long to wait first. A state machine without I/O, clock or randomness.

A call is repeated only if that cannot have an effect twice (`wire.Replay`), only after errors that may pass, and only
while the next attempt begins within `total_s` and before the caller's deadline. Waits are random between 0 and a
doubling limit (full jitter), so that clients that failed together do not return together. The wait that the broker asks
for (Retry-After) comes before that. All calls of a client share a budget: without one, a broker that answers late would
get a multiple of its load.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import TypeVar

from topics_client.answers import result_of
from topics_client.errors import ApiError, ConnectionFailed, DeadlineExceeded, TopicsError
from topics_client.wire import Call, NoReply, Replay, Reply, Request

T = TypeVar("T")

#: 2 ** 30 times the base is above every cap; more would only overflow.
_MAX_DOUBLINGS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How long and how eagerly to retry; seconds. total_s 0 = never.

    `total_s` must stay below the topic's idempotency_window_ms (120 s by default): after the window, a repeated key is
    a new key to the broker. `reconnect` False: a broker that cannot be reached is an error at once, while one that
    answers "not now" is still asked again.
    """

    total_s: float = 60.0
    base_s: float = 0.05
    cap_s: float = 5.0
    reconnect: bool = True

    def backoff_s(self, tries: int, error: TopicsError, draw: float) -> float:
        """The wait after this many failed attempts; `draw` is uniform in [0, 1)."""
        bound = min(self.cap_s, self.base_s * 2.0 ** min(tries - 1, _MAX_DOUBLINGS))
        asked = error.retry_after_s if isinstance(error, ApiError) else None
        return (asked or 0.0) + bound * draw


class RetryBudget:
    """How many retries all calls of a client may make together: a token bucket, for any number of threads.

    Every call earns `share` of a retry, and every second earns `per_second` retries; at most `burst` are saved. A retry
    that is not earned yet waits until it is. No call is given up because of that: if it would take longer than the call
    may, the retry comes at a random moment of the remaining time.
    """

    def __init__(self, *, share: float = 0.1, per_second: float = 10.0, burst: float = 20.0) -> None:
        self._share = share
        self._per_second = max(per_second, 1e-9)
        self._burst = burst
        #: Below zero: this many retries wait.
        self._tokens = burst
        self._counted_at: float | None = None
        self._lock = threading.Lock()

    def earn(self) -> None:
        """A call is made for the first time."""
        with self._lock:
            self._tokens = min(self._burst, self._tokens + self._share)

    def wait_s(self, now: float) -> float:
        """Take one retry. Returns the seconds until it is earned."""
        with self._lock:
            if self._counted_at is not None:
                self._tokens = min(self._burst, self._tokens + (now - self._counted_at) * self._per_second)
            self._counted_at = now
            self._tokens -= 1
            return max(0.0, -self._tokens / self._per_second)

    def give_back(self) -> None:
        """A retry that was taken is not used, or not when it is earned."""
        with self._lock:
            self._tokens = min(self._burst, self._tokens + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Wait this long, then ask for the next step. `error` is that of the last attempt."""

    seconds: float
    error: TopicsError
    tries: int


Step = Request | Pause


def exchange(
    call: Call[T],
    policy: RetryPolicy,
    *,
    now: Callable[[], float],
    draw: Callable[[], float],
    budget: RetryBudget,
    ends_s: float = math.inf,
) -> Generator[Step, Reply | NoReply | None, T]:
    """Carries one call through its attempts. Yields a Request (send back its Reply or NoReply) or a Pause (send None).

    Returns the call's value, or raises the last attempt's error with `tries` and `tried_for_s` filled in. No Request is
    yielded at `ends_s` (in the time of `now`) or later: then DeadlineExceeded is raised from the last attempt's error.
    """
    began = now()
    budget.earn()
    tries = 0
    perhaps_done = False
    last: TopicsError | None = None
    while True:
        request = call.request
        if ends_s < math.inf:
            left_s = ends_s - now()
            if left_s <= 0:
                raise _exceeded(last, perhaps_done) from last
            request = replace(request, limit_s=left_s)
        outcome = yield request
        tries += 1
        assert outcome is not None, "a Request is answered with what came of it"
        try:
            value = result_of(call, outcome)
        except TopicsError as error:
            perhaps_done = perhaps_done or error.outcome == "unknown"
            error.tries = tries
            ended = now()
            error.tried_for_s = ended - began
            if error.transient and ended >= ends_s:
                raise _exceeded(error, perhaps_done) from error
            lost = isinstance(error, ConnectionFailed) and not policy.reconnect
            if lost or not may_repeat(call.request, error):
                raise
            seconds = policy.backoff_s(tries, error, draw())
            # Waiting for longer than is left would only postpone the same error.
            if policy.total_s <= 0 or error.tried_for_s + seconds > policy.total_s:
                raise
            if ended + seconds >= ends_s:
                raise _exceeded(error, perhaps_done) from error
            left_s = min(policy.total_s - error.tried_for_s, ends_s - ended)
            seconds = _within_budget(seconds, left_s, budget, now(), draw)
            last = error
            pause = Pause(seconds=seconds, error=error, tries=tries)
        else:
            if call.check is not None:
                call.check(value, perhaps_done)
            return value
        yield pause


def _exceeded(last: TopicsError | None, perhaps_done: bool) -> DeadlineExceeded:
    if last is None:
        return DeadlineExceeded("The deadline had passed before the call was made.")
    return DeadlineExceeded.after(last, outcome="unknown" if perhaps_done else "none")


def _within_budget(seconds: float, left_s: float, budget: RetryBudget, now: float, draw: Callable[[], float]) -> float:
    """The wait before a retry, with no more retries than the budget has."""
    earned_s = budget.wait_s(now)
    if earned_s <= left_s:
        return max(seconds, earned_s)
    budget.give_back()
    return seconds + (left_s - seconds) * draw()


def may_repeat(request: Request, error: TopicsError) -> bool:
    """Whether a repetition makes sense and cannot have an effect twice."""
    if not error.transient or request.replay is Replay.NEVER:
        return False
    return request.replay is Replay.SAFE or error.outcome == "none"
