"""The requests of a cell to an object store, as values: the protocol decides, and other code sends them.

    Create   a new object, or the answer that one of that name exists
    Get      an object, several of them (`GetMany`), some bytes of one (`GetRange`), or that there is none
    Put      an object that replaces another: signs of life only
    Delete   objects; missing ones are fine
    Stat     when an object was stored last, by the store's clock
    Names    what a listing shows, or some of it (`SomeNames`)
    Wait     this many seconds, and returns the time after them

Each part of the protocol is a generator that yields these requests and is sent the answers (`Steps`). So it has no
thread, no clock and no connection. `storage.bucket.driver` sends the requests to a store. The simulator of the tests
answers them late, twice, wrongly or never, for several processes at once, in every order.

A request whose outcome is unknown raises `Unanswered` inside the generator: it may have been carried out, or may be
carried out later. Source: docs/reference/bucket.md.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")


class Unanswered(Exception):
    """No answer, or an error of the store: the request may or may not take effect, now or later."""


class Create(NamedTuple):
    key: str
    data: bytes


class Get(NamedTuple):
    key: str


class GetMany(NamedTuple):
    keys: tuple[str, ...]


class GetRange(NamedTuple):
    """Up to `size` bytes from `offset`; fewer at the end of the object."""

    key: str
    offset: int
    size: int


class Put(NamedTuple):
    key: str
    data: bytes


class Delete(NamedTuple):
    """Several objects, each at a moment of its own. Unanswered: some may be deleted."""

    keys: tuple[str, ...]


class Stat(NamedTuple):
    """Answered with seconds since 1970, or None."""

    key: str


class Names(NamedTuple):
    prefix: str


class SomeNames(NamedTuple):
    """The first `most` of the names that are `wanted`. The others are not held in memory."""

    prefix: str
    wanted: Callable[[str], bool]
    most: int


class Wait(NamedTuple):
    seconds: float


Request: TypeAlias = Create | Get | GetMany | GetRange | Put | Delete | Stat | Names | SomeNames | Wait
Steps: TypeAlias = Generator[Request, Any, T]


def create(key: str, data: bytes) -> Steps[bool]:
    """True: this request created the object. False: an object with that name exists, perhaps from an earlier
    attempt."""
    return (yield Create(key, data))


def get(key: str) -> Steps[bytes | None]:
    return (yield Get(key))


def get_many(keys: Sequence[str]) -> Steps[list[bytes | Unanswered | None]]:
    """Each object as of a moment of its own, or that it was not answered."""
    return (yield GetMany(tuple(keys)))


def put(key: str, data: bytes) -> Steps[None]:
    yield Put(key, data)


def delete(*keys: str) -> Steps[None]:
    yield Delete(keys)


def names(prefix: str) -> Steps[list[str]]:
    """Keys that begin with `prefix`, in any order. Some may be missing, and some may have been deleted."""
    return (yield Names(prefix))


def some_names(prefix: str, wanted: Callable[[str], bool], most: int) -> Steps[list[str]]:
    """As `names`."""
    return (yield SomeNames(prefix, wanted, most))


def wait(seconds: float) -> Steps[None]:
    yield Wait(seconds)


def now() -> Steps[float]:
    """The process's monotonic clock, in seconds."""
    return (yield Wait(0.0))


def get_patiently(key: str, for_s: float = 30.0) -> Steps[bytes | None]:
    return (yield from patiently(Get(key), (yield from now()) + for_s))


def get_range_patiently(key: str, offset: int, size: int, for_s: float) -> Steps[bytes | None]:
    return (yield from patiently(GetRange(key, offset, size), (yield from now()) + for_s))


def stat_patiently(key: str, for_s: float = 30.0) -> Steps[float | None]:
    return (yield from patiently(Stat(key), (yield from now()) + for_s))


def names_patiently(prefix: str, for_s: float = 30.0) -> Steps[list[str]]:
    return (yield from patiently(Names(prefix), (yield from now()) + for_s))


def patiently(
    request: Create | Get | GetMany | GetRange | Put | Delete | Stat | Names, until: float, pause_s: float = 0.1
) -> Steps[Any]:
    """The answer, with repeated requests until the clock reaches `until`. Raises Unanswered then.

    Only for requests that may be carried out twice.
    """
    while True:
        try:
            return (yield request)
        except Unanswered:
            at: float = yield Wait(pause_s)
            if at >= until:
                raise
            pause_s = min(2 * pause_s, 1.0)
