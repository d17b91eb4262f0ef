"""Hooks around each attempt: their arguments, and the headers they may add."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

import httpx
import pytest

from tests.client.fake_broker import FakeBroker, answer_lost, no_connection, refused
from tests.http.test_openapi import OPERATIONS
from topics_client import AsyncClient, Attempt, Client, RetryPolicy, TopicNotFound
from topics_client.attempts import route_of

QUICK = RetryPolicy(base_s=0.001)


class Seen:
    """A hook that records its arguments: `shown` before each attempt, `ended` after it."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, str, int, int | None]] = []
        self.ended: list[Attempt] = []
        self.raised: list[str] = []

    @contextmanager
    def __call__(self, attempt: Attempt) -> Generator[None]:
        self.shown.append((attempt.method, attempt.route, attempt.number, attempt.status))
        attempt.headers["X-Try"] = str(attempt.number)
        try:
            yield
        except BaseException as error:
            self.raised.append(type(error).__name__)
            raise
        self.ended.append(attempt)


@pytest.mark.parametrize(("method", "route"), sorted(OPERATIONS))
@pytest.mark.parametrize("value", ["x", "topics", "records", "watch"])
def test_a_path_maps_back_to_its_route_template(method: str, route: str, value: str) -> None:
    filled = "/".join(value if segment.startswith("{") else segment for segment in route.split("/"))
    assert route_of(filled) == route
    assert route_of(f"{filled}?topics=a/b") == route


def check(seen: Seen, fake: FakeBroker) -> None:
    path = "/v0/topics/{topic}"
    tries = [("POST", path, number, None) for number in (1, 2, 3, 4)]
    assert seen.shown == [*tries, ("GET", f"{path}/records/{{seq}}", 1, None)]
    assert [each.status for each in seen.ended] == [None, None, 503, 200, 404]
    assert ["refused" in (each.failure or "") for each in seen.ended] == [True, False, False, False, False]
    assert all(each.seconds >= 0 for each in seen.ended)
    assert [each.headers["x-try"] for each in fake.requests] == ["1", "2", "3", "4", "1"]


def test_each_try_is_shown(fake: FakeBroker) -> None:
    fake.troubles.extend([no_connection, answer_lost, refused(503, "wal_saturated")])
    seen = Seen()
    with Client(http=httpx.MockTransport(fake), retry=QUICK, instrument=seen) as client:
        client.append("orders", [1])
        with pytest.raises(TopicNotFound):
            client.get_record("nowhere", 1)
    check(seen, fake)


async def test_each_try_of_asyncio_is_shown(fake: FakeBroker) -> None:
    fake.troubles.extend([no_connection, answer_lost, refused(503, "wal_saturated")])
    seen = Seen()
    async with AsyncClient(http=httpx.MockTransport(fake), retry=QUICK, instrument=seen) as client:
        await client.append("orders", [1])
        with pytest.raises(TopicNotFound):
            await client.get_record("nowhere", 1)
    check(seen, fake)


async def test_a_cancelled_try_is_reported_to_its_hook() -> None:
    async def never(request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(60)
        return httpx.Response(200)

    seen = Seen()
    async with AsyncClient(http=httpx.MockTransport(never), instrument=seen) as client:
        task = asyncio.create_task(client.health())
        while not seen.shown:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert seen.raised == ["CancelledError"]
