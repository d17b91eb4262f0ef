"""Signs of life of a process in the bucket, the time that they give it, and how other processes judge them.

Each process writes its own object `nodes/<nonce>` again and again; no other process ever writes that object. The safety
of writes does not depend on this: slots alone decide who may write. Signs of life decide who may answer reads, and
writes of the classes that do not wait for a slot.

    The owner    answers nothing later than TTL less a margin after it sent its seal, or its last sign that it knows to
                 be stored. What it gets to know later than that extends nothing: then the time is over, and only a new
                 seal begins another.
    The others   may seal over its seal when they have seen both that seal, or a slot behind it, and its sign, and the
                 same sign in an answer to a request that was sent at least TTL after that.

Let the others' first look be the moment when they had seen both, and the last look the sending of that request. What
the owner sent before the first look gives it time that ends before the last look. A sign that it sent later was stored
after the last look, because they saw none between the two. So the owner learned of it when its time was over. Both use
their own monotonic clocks; the margin covers clocks that run at different speeds.
"""

from __future__ import annotations

from typing import Final

import msgspec

from storage.bucket import keys
from storage.bucket.requests import Steps, Unanswered, delete, get, now, put, wait

TTL_S: Final = 5.0
MARGIN_S: Final = 1.0
EVERY_S: Final = 1.0
#: How often a process that waits looks whether there is something new.
LOOK_S: Final = 0.25


class Sign(msgspec.Struct, frozen=True):
    """The content of a sign of life."""

    node: str
    nonce: str
    count: int
    address: str = ""
    #: Generations of the cells that the process owns.
    cells: dict[str, int] = {}


class OwnTime:
    """Until when a process may answer for a cell that it owns. Pure; seconds of its monotonic clock."""

    def __init__(self, ttl_s: float = TTL_S, margin_s: float = MARGIN_S) -> None:
        self._ttl_s = ttl_s - margin_s
        self._until: float | None = None

    def sealed(self, sent_at: float) -> None:
        """A seal is known to exist, and nobody had sent it before `sent_at`."""
        self._until = sent_at + self._ttl_s

    def stored(self, sent_at: float, at: float) -> None:
        """At `at` it became known that the sign sent at `sent_at` is stored."""
        if self._until is not None and at < self._until:
            self._until = max(self._until, sent_at + self._ttl_s)

    def close(self) -> None:
        """The process gives up the cell: nothing is answered any more."""
        self._until = None

    def expired(self, at: float) -> bool:
        """Whether its time is over. Then only a new seal helps."""
        return self._until is not None and at >= self._until

    def left_s(self, at: float) -> float:
        """How much of its time is left."""
        return 0.0 if self._until is None else max(0.0, self._until - at)

    def is_open(self, at: float) -> bool:
        """Whether an answer that was computed may be sent."""
        return self._until is not None and at < self._until


def show_first(node: str, nonce: str) -> Steps[None]:
    """Before `show_signs`: so that the store's clock can be asked for. Raises Unanswered."""
    yield from put(keys.sign(nonce), msgspec.json.encode(Sign(node, nonce, 0)))


def show_signs(node: str, nonce: str, times: list[OwnTime], every_s: float = EVERY_S, address: str = "") -> Steps[None]:
    """Write the sign of life forever, and report the times. One request at a time, so that signs are stored in
    order."""
    count = 0
    key = keys.sign(nonce)
    while True:
        count += 1
        sent_at = yield from now()
        try:
            yield from put(key, msgspec.json.encode(Sign(node, nonce, count, address)))
        except Unanswered:
            # It may be stored late, in place of a later one. To others that is a change, which makes them wait longer.
            pass
        else:
            at = yield from now()
            for each in times:
                each.stored(sent_at, at)
        left = sent_at + every_s - (yield from now())
        yield from wait(max(0.0, left))


def forget_signs(nonces: set[str]) -> Steps[None]:
    """Delete the signs of processes that have owned a cell, when another one has sealed behind them. Raises Unanswered.

    At any time, however late: a process that another one has followed can seal nothing any more, so nobody judges its
    sign again. That is not true of a process that has not owned its cell yet. If others looked only before its sign
    was stored and after it was deleted, they would seal although its time is not over.
    """
    if nonces:
        yield from delete(*sorted(map(keys.sign, nonces)))


class Look(msgspec.Struct, frozen=True):
    """A first look at the sign of an owner: a seal of this nonce and generation existed before it."""

    nonce: str
    generation: int
    sign: bytes | None
    #: When the answer was there, by the process's monotonic clock.
    at: float


def look_at(nonce: str, generation: int = 0) -> Steps[Look]:
    """See the sign of the process whose seal the caller has seen, and begin to count. Raises Unanswered."""
    sign = yield from get(keys.sign(nonce))
    return Look(nonce, generation, sign, (yield from now()))


def is_gone(nonce: str, ttl_s: float = TTL_S, *, unless: str = "", since: Look | None = None) -> Steps[bool]:
    """Whether the process shows no sign of life for TTL. False as soon as it does, or an object `unless` exists. The
    caller has seen its seal.

    `since`: a look that the caller had at the sign when that seal existed. Raises Unanswered if the store does not
    answer.
    """
    first = since if since is not None else (yield from look_at(nonce))
    until = first.at + ttl_s
    while True:
        left = until - (yield from now())
        if left > 0:
            yield from wait(min(left, LOOK_S))
        looked_at = yield from now()
        if unless and (yield from get(unless)) is not None:
            return False
        if (yield from get(keys.sign(nonce))) != first.sign:
            return False
        if looked_at >= until:
            return True
