"""Objects that take longer than the limit of a small request, because they are large and the line is slow."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import ClassVar

import pytest

from storage.bucket import base, driver, limits
from storage.bucket.base import Named, get_object, put_object
from storage.bucket.driver import Driver, open_bucket
from storage.bucket.requests import Create, Steps, Unanswered, Wait
from storage.platform import SystemClock
from tests.support.memory_bucket import MemoryBucket
from tests.unit.storage.cold.servers import BUCKET, QuietServer, answering, credentials

#: The limit of a small request here.
TIMEOUT_S = 1.5
#: A body takes longer than that, and comes in so many parts with a pause behind each.
PARTS = 6
PAUSE_S = 0.3
LARGE = bytes(4 * limits.SMALL_BYTES)
SMALL = bytes(limits.SMALL_BYTES)

_never = threading.Event()


class SlowLine(QuietServer):
    """Every body needs PARTS x PAUSE_S, in either direction."""

    def do_PUT(self) -> None:
        self._take(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _take(self, size: int) -> None:
        for _ in range(PARTS):
            self.rfile.read(size // PARTS)
            _never.wait(PAUSE_S)
        self.rfile.read(size - size // PARTS * PARTS)

    def do_GET(self) -> None:
        self.begin(len(LARGE))
        for _ in range(PARTS):
            self.wfile.write(bytes(len(LARGE) // PARTS))
            self.wfile.flush()
            _never.wait(PAUSE_S)
        self.wfile.write(bytes(len(LARGE) - len(LARGE) // PARTS * PARTS))

    def begin(self, size: int) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.send_header("Last-Modified", "Wed, 21 Oct 2026 07:28:00 GMT")
        self.send_header("ETag", '"1"')
        self.end_headers()


class DeadLine(SlowLine):
    """Takes nothing of a body, and sends only the first byte of one."""

    over: ClassVar[threading.Event]

    def do_PUT(self) -> None:
        self.close_connection = True
        self.over.wait()

    def do_GET(self) -> None:
        self.close_connection = True
        self.begin(len(LARGE))
        self.wfile.write(b"x")
        self.wfile.flush()
        self.over.wait()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[driver.RemoteBucket]:
    with answering(SlowLine) as endpoint:
        credentials(monkeypatch, endpoint)
        yield open_bucket("s3", BUCKET, None, TIMEOUT_S)


@pytest.fixture
def dead(monkeypatch: pytest.MonkeyPatch) -> Iterator[driver.RemoteBucket]:
    DeadLine.over = threading.Event()
    with answering(DeadLine) as endpoint:
        credentials(monkeypatch, endpoint)
        yield open_bucket("s3", BUCKET, None, TIMEOUT_S)
        DeadLine.over.set()


def test_a_large_object_is_put_although_it_takes_longer_than_a_small_one_may(slow: driver.RemoteBucket) -> None:
    assert slow.create("large", LARGE)


def test_a_small_object_has_the_limit_of_a_small_request(slow: driver.RemoteBucket) -> None:
    with pytest.raises(Unanswered, match="no answer in time"):
        slow.create("small", SMALL)


def test_an_object_is_read_as_long_as_bytes_arrive(slow: driver.RemoteBucket) -> None:
    assert slow.get("large") == LARGE


def test_a_store_that_takes_no_bytes_is_given_up(dead: driver.RemoteBucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BYTES_PER_S", len(LARGE) / 0.2)
    with pytest.raises(Unanswered, match="no answer in time"):
        dead.create("large", LARGE)


def test_a_store_that_sends_no_bytes_is_given_up(dead: driver.RemoteBucket) -> None:
    for read in (lambda: dead.get("a"), lambda: dead.get_range("a", 0, 9)):
        with pytest.raises(Unanswered):
            read()


def test_an_object_is_tried_again_for_as_long_as_three_requests_may_take() -> None:
    def tries_until_s(data: bytes) -> float:
        """The time at which the last request is made, if each of them fails when its limit is over."""
        steps: Steps[Named] = put_object("key", data)
        now, last, request = 0.0, 0.0, next(steps)
        try:
            while True:
                if isinstance(request, Wait):
                    request = steps.send(now)
                else:
                    assert request == Create("key", data)
                    last = now
                    now += limits.create_s(len(data))
                    request = steps.throw(Unanswered())
        except Unanswered:
            return last

    assert tries_until_s(b"small") == 2 * limits.TIMEOUT_S
    assert tries_until_s(LARGE) == 2 * limits.create_s(len(LARGE)) > base.TRY_S


def test_a_create_has_time_for_its_bytes() -> None:
    assert limits.create_s(0) == limits.create_s(limits.SMALL_BYTES) == limits.TIMEOUT_S
    for size in (limits.SMALL_BYTES + 1, 5_000_000, 64 << 20, 2 << 30):
        needed = limits.TIMEOUT_S + size / limits.BYTES_PER_S
        assert needed <= limits.create_s(size) <= 2 * needed


class Sizes(MemoryBucket):
    """Notes how many bytes were asked for at a time; None: a whole object."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int | None] = []

    def get(self, key: str) -> bytes | None:
        self.sizes.append(None)
        return super().get(key)

    def get_range(self, key: str, offset: int, size: int) -> bytes | None:
        self.sizes.append(size)
        return super().get_range(key, offset, size)


@pytest.mark.parametrize(
    ("size", "sizes"),
    [(0, [None]), (10, [None]), (11, [10, 1]), (30, [10, 10, 10])],
)
def test_a_large_object_is_read_in_pieces(size: int, sizes: list[int | None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PIECE_BYTES", 10)
    store = Sizes()
    reader = Driver(store, SystemClock())
    named = Named.of("key", bytes(range(size)))
    assert reader.run(get_object(named)) is None
    store.objects["key"] = bytes(range(size))
    store.sizes.clear()
    assert reader.run(get_object(named)) == bytes(range(size))
    assert store.sizes == sizes
    store.objects["key"] = bytes(range(size))[:-1]
    assert not named.fits(reader.run(get_object(named))) or not size
    reader.close()
