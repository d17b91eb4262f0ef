"""The asyncio producer against a fake broker: only the parts that differ from the blocking producer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from tests.client.fake_broker import FakeBroker, error
from topics_client import (
    AsyncClient,
    AsyncProducer,
    AsyncSent,
    BufferFull,
    ConnectionFailed,
    InvalidRequest,
    ProducerClosed,
    RetryPolicy,
    TopicFull,
    within,
)

QUICK = RetryPolicy(base_s=0.001, cap_s=0.01)
PATIENCE_S = 30


def run(fake: FakeBroker, body: Callable[[AsyncClient], Awaitable[None]], retry: RetryPolicy = QUICK) -> None:
    async def main() -> None:
        async with AsyncClient(http=httpx.MockTransport(fake), retry=retry) as client:
            await client.put_topic("t")
            await asyncio.wait_for(body(client), PATIENCE_S)

    asyncio.run(main())


def data_of(fake: FakeBroker, topic: str = "t") -> list[object]:
    return [json.loads(record)["data"] for record in fake.topics[topic].records if record is not None]


def appends(fake: FakeBroker) -> list[dict[str, Any]]:
    return [json.loads(each.content) for each in fake.requests if each.method == "POST"]


def refused(request: httpx.Request, answer: Callable[[], httpx.Response]) -> httpx.Response:
    return error(422, "topic_full", "The topic is full.")


def lost(request: httpx.Request, answer: Callable[[], httpx.Response]) -> httpx.Response:
    answer()
    raise httpx.ReadError("broken", request=request)


def test_handles_return_the_place_of_their_records(fake: FakeBroker) -> None:
    async def body(client: AsyncClient) -> None:
        async with AsyncProducer(client, batch_records=2) as producer:
            sent = [await producer.send("t", number) for number in range(5)]
            assert [(await each).seq for each in sent] == [1, 2, 3, 4, 5]
            assert all(each.done() for each in sent)

    run(fake, body)
    assert data_of(fake) == [0, 1, 2, 3, 4]
    assert max(len(each["records"]) for each in appends(fake)) == 2


def test_a_batch_waits_for_more_records_and_a_flush_does_not(fake: FakeBroker) -> None:
    async def body(client: AsyncClient) -> None:
        async with AsyncProducer(client, linger_ms=3_600_000) as producer:
            sent = [await producer.send("t", number) for number in range(3)]
            await asyncio.sleep(0.02)
            assert not any(each.done() for each in sent)
            await producer.flush()
            assert all(each.done() for each in sent)

    run(fake, body)
    assert [len(each["records"]) for each in appends(fake)] == [3]


def test_a_batch_is_sent_after_its_linger_time(fake: FakeBroker) -> None:
    async def body(client: AsyncClient) -> None:
        async with AsyncProducer(client, linger_ms=20) as producer:
            first, second = await producer.send("t", 1), await producer.send("t", 2)
            assert ((await first).seq, (await second).seq) == (1, 2)

    run(fake, body)
    # Two batches, if the machine took longer than that between the records.
    assert sum(len(each["records"]) for each in appends(fake)) == 2


def test_leaving_the_block_sends_buffered_records(fake: FakeBroker) -> None:
    async def body(client: AsyncClient) -> None:
        async with AsyncProducer(client, linger_ms=3_600_000, batch_records=7) as producer:
            await asyncio.gather(*(producer.send("t", number) for number in range(100)))
        with pytest.raises(ProducerClosed):
            await producer.send("t", 1)

    run(fake, body)
    assert sorted(map(str, data_of(fake))) == sorted(map(str, range(100)))


def test_a_flush_raises_an_error_that_no_handle_has_reported(fake: FakeBroker) -> None:
    async def body(client: AsyncClient) -> None:
        producer = AsyncProducer(client, linger_ms=3_600_000)
        fake.troubles.extend([None, refused])  # the first request asks for the partitions
        failed = [await producer.send("t", number) for number in range(3)]
        with pytest.raises(TopicFull):
            await producer.flush()
        assert isinstance(await failed[1].exception(), TopicFull)
        with pytest.raises(TopicFull):
            await failed[2]
        fake.troubles.append(refused)
        asked = asyncio.ensure_future((await producer.send("t", 4)).exception())
        await asyncio.sleep(0)
        await producer.close()
        assert isinstance(await asked, TopicFull)

    run(fake, body)


def test_a_request_without_an_answer_is_repeated_with_the_same_key(fake: FakeBroker) -> None:
    async def body(client: AsyncClient) -> None:
        async with AsyncProducer(client) as producer:
            fake.troubles.extend([None, lost])
            assert (await (await producer.send("t", 1))).seq == 1

    run(fake, body)
    assert data_of(fake) == [1]
    first, second = [each["idempotency_key"] for each in appends(fake)]
    assert first == second


def test_an_unknown_outcome_is_reported_as_unknown(fake: FakeBroker) -> None:
    async def body(client: AsyncClient) -> None:
        async with AsyncProducer(client) as producer:
            fake.troubles.extend([None, lost])
            found = await (await producer.send("t", 1)).exception()
            assert isinstance(found, ConnectionFailed)
            assert found.outcome == "unknown"

    run(fake, body, RetryPolicy(total_s=0))


class HeldTransport:
    """The `http` of a client, with appends that wait until `go` is set."""

    def __init__(self, fake: FakeBroker, topic: str = "t") -> None:
        self.fake = fake
        self.path = f"/v0/topics/{topic}"
        self.reached, self.go = asyncio.Event(), asyncio.Event()

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "POST" and request.url.path == self.path:
            self.reached.set()
            await self.go.wait()
        return self.fake(request)


async def held(fake: FakeBroker, body: Callable[[AsyncClient, HeldTransport], Awaitable[None]]) -> None:
    hold = HeldTransport(fake)
    async with AsyncClient(http=httpx.MockTransport(hold), retry=QUICK) as client:
        await client.put_topic("t")
        await asyncio.wait_for(body(client, hold), PATIENCE_S)


def test_each_topic_has_one_request_in_progress_and_topics_are_sent_in_parallel(fake: FakeBroker) -> None:
    async def body(client: AsyncClient, hold: HeldTransport) -> None:
        await client.put_topic("u")
        async with AsyncProducer(client, linger_ms=0, batch_records=1) as producer:
            waiting = [await producer.send("t", number) for number in range(3)]
            await hold.reached.wait()
            assert (await (await producer.send("u", 1))).seq == 1
            assert not any(each.done() for each in waiting)
            hold.go.set()

    asyncio.run(held(fake, body))
    assert data_of(fake) == [0, 1, 2]


def test_a_full_buffer_blocks_the_caller_until_a_timeout(fake: FakeBroker) -> None:
    async def body(client: AsyncClient, hold: HeldTransport) -> None:
        producer = AsyncProducer(client, linger_ms=0, batch_records=1, buffer_bytes=1000, max_block_s=0.05)
        taken: list[AsyncSent] = []

        async def fill() -> None:
            while len(taken) < 100:
                taken.append(await producer.send("t", "x" * 100))

        with pytest.raises(BufferFull):
            await fill()
        assert 1 <= len(taken) <= 1000 // 100
        with pytest.raises(TimeoutError):
            await producer.flush(0.01)
        # One task that waits for room is cancelled. The other gets an error at close.
        cancelled = asyncio.ensure_future(producer.send("t", "c" * 100))
        await asyncio.sleep(0)
        cancelled.cancel()
        hold.go.set()
        await producer.flush()
        await producer.send("t", "y" * 5000)  # larger than the buffer, which is empty
        await producer.close()
        assert len(data_of(fake)) == len(taken) + 1

    asyncio.run(held(fake, body))


def test_a_caller_that_waits_for_room_continues_when_there_is_room(fake: FakeBroker) -> None:
    """Although its batches would linger for an hour."""

    async def body(client: AsyncClient) -> None:
        async with AsyncProducer(client, linger_ms=3_600_000, buffer_bytes=2000) as producer:
            for number in range(200):
                await producer.send("t", number)

    run(fake, body)
    assert data_of(fake) == [*range(200)]


def test_other_tasks_run_between_the_batches_of_a_caller_that_never_waits(fake: FakeBroker) -> None:
    async def body(client: AsyncClient) -> None:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count())
        async with AsyncProducer(client, batch_records=10) as producer:
            for number in range(100):
                await producer.send("t", number)
            assert turns > 3
        counting.cancel()

    run(fake, body)


def test_a_deadline_of_the_caller_does_not_apply_to_sending(fake: FakeBroker) -> None:
    async def body(client: AsyncClient) -> None:
        async with AsyncProducer(client, linger_ms=30) as producer:
            await producer.send("t", 0)
            with within(0.01):
                sent = await producer.send("t", 1)
            assert (await sent).seq == 2

    run(fake, body)


def test_records_of_an_ended_loop_have_an_unknown_outcome(fake: FakeBroker) -> None:
    sent: list[AsyncSent] = []

    async def main() -> None:
        hold = HeldTransport(fake)
        async with AsyncClient(http=httpx.MockTransport(hold)) as client:
            await client.put_topic("t")
            producer = AsyncProducer(client, linger_ms=0)
            sent.append(await producer.send("t", 1))
            await hold.reached.wait()

    asyncio.run(main())
    assert sent[0].done()
    with pytest.raises(ProducerClosed) as caught:
        asyncio.run(_result(sent[0]))
    assert caught.value.outcome == "unknown"


async def _result(sent: AsyncSent) -> None:
    await sent


def test_impossible_limits_are_refused(fake: FakeBroker) -> None:
    async def body(client: AsyncClient) -> None:
        with pytest.raises(InvalidRequest):
            AsyncProducer(client, batch_records=0)
        with pytest.raises(InvalidRequest):
            AsyncProducer(client, senders=0)

    run(fake, body)
