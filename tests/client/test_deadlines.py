"""A deadline shared by calls: nested blocks, threads, tasks, endless answers, and calls without the deadline."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterator

import httpx
import pytest

from tests.client.fake_broker import FakeBroker, listening, no_connection, refused
from topics_client import AsyncClient, Client, DeadlineExceeded, deadlines, within
from topics_client.light_pool import LightPool
from topics_client.pool import Pool


def mocked(fake: FakeBroker) -> Client:
    return Client(http=httpx.MockTransport(fake))


def test_a_deadline_ends_the_retries_of_all_calls_in_the_block(fake: FakeBroker) -> None:
    fake.troubles.extend([refused(503, "wal_saturated"), None] + [no_connection] * 100)
    # Long enough for the first call on a crowded machine.
    with mocked(fake) as client, within(3):
        client.append("t", [1])
        ends_s = deadlines.ends_s()
        with pytest.raises(DeadlineExceeded, match="refused") as caught:
            client.append("t", [2])
        assert caught.value.outcome == "none"
        seen = len(fake.requests)
        while time.monotonic() < ends_s:
            time.sleep(0.01)
        with pytest.raises(DeadlineExceeded):
            client.health()
        assert len(fake.requests) == seen


def test_calls_after_the_block_have_no_deadline(fake: FakeBroker) -> None:
    with mocked(fake) as client:
        with within(0), pytest.raises(DeadlineExceeded):
            client.health()
        assert client.health().status == "ok"


def test_the_earliest_deadline_of_nested_blocks_applies(fake: FakeBroker) -> None:
    with mocked(fake) as client, within(60):
        with within(0), within(60), pytest.raises(DeadlineExceeded):
            client.health()
        assert client.health().status == "ok"
        limits: list[float | None] = []
        with deadlines.lifted(), within(5):
            limits.append(deadlines.ends_s() - time.monotonic())
        assert limits[0] is not None
        assert 0 < limits[0] <= 5


def test_other_threads_have_no_deadline(fake: FakeBroker) -> None:
    seen: list[str] = []
    with mocked(fake) as client, within(0):
        with deadlines.lifted():
            thread = threading.Thread(target=lambda: seen.append(client.health().status))
            thread.start()
        thread.join()
    assert seen == ["ok"]


async def test_tasks_inherit_the_deadline_of_their_creator(fake: FakeBroker) -> None:
    async with AsyncClient(http=httpx.MockTransport(fake)) as client:

        async def strict() -> None:
            with within(0):
                await asyncio.sleep(0)
                await client.health()

        outcomes = await asyncio.gather(strict(), client.health(), strict(), return_exceptions=True)
        assert [type(each).__name__ for each in outcomes] == ["DeadlineExceeded", "Health", "DeadlineExceeded"]
        with within(0):
            inherited = asyncio.create_task(client.health())
        with pytest.raises(DeadlineExceeded):
            await inherited


@pytest.fixture
def silent_url(fake: FakeBroker) -> Iterator[str]:
    """A broker that answers when the test has ended."""
    over = threading.Event()

    def never(request: httpx.Request, proceed: Callable[[], httpx.Response]) -> httpx.Response:
        over.wait(60)
        return proceed()

    fake.troubles.extend([never] * 10)
    with listening(fake) as url:
        yield url
        over.set()


@pytest.mark.parametrize("light", [False, True])
def test_a_try_in_progress_ends_at_the_deadline(silent_url: str, light: bool) -> None:
    sender = LightPool(silent_url, None, 30.0) if light else Pool(silent_url, None, 30.0)
    began = time.monotonic()
    with Client(silent_url, sender=sender) as client, within(2), pytest.raises(DeadlineExceeded) as caught:
        client.append("t", [1])
    # The limit of a single attempt is thirty seconds.
    assert time.monotonic() - began < 20
    assert caught.value.outcome == "unknown"
    assert re.search(r"did not answer within [01]\.", str(caught.value))


async def test_a_watch_ends_at_the_deadline(fake: FakeBroker) -> None:
    fake.troubles.extend([refused(503, "wal_saturated")] * 1000)
    async with AsyncClient(http=httpx.MockTransport(fake)) as client:
        with within(0.2), pytest.raises(DeadlineExceeded):
            async for _ in client.watch("t"):
                pass


def test_a_pause_beyond_the_deadline_is_not_begun(fake: FakeBroker) -> None:
    fake.troubles.append(refused(503, "wal_saturated", headers={"Retry-After": "30"}))
    with mocked(fake) as client, within(10), pytest.raises(DeadlineExceeded, match="no time for another try"):
        client.append("t", [1])
    assert len(fake.requests) == 1
