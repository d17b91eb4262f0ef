"""Workers at a real broker: arguments and results of handlers, slow handlers, a graceful stop, many jobs."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from tests.client.real_broker import PATIENCE_S, RealBroker
from topics_client import Backoff, Client, InvalidRequest, Job, JobContext, NewRecord, TopicFull, TopicNotFound, Worker

#: Long enough for a renewal on a crowded machine.
SHORT = "3s"
SHORT_S = 3.0


@pytest.fixture
def client(client: Client) -> Client:
    client.put_topic("q", type="queue", max_deliveries=3, dead_letter="dead")
    return client


def until(holds: Callable[[], Any], within_s: float = PATIENCE_S) -> None:
    end = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.005)


def figures(client: Client, queue: str = "q") -> tuple[int, int, int, int]:
    """Number of jobs that are ready, leased, delayed, and in the dead letter topic."""
    found = client.state(queue).queue or {}
    return found["ready"], found["in_flight"], found["delayed"], found["dead_lettered"]


def is_done(client: Client, queue: str = "q") -> bool:
    return figures(client, queue)[:3] == (0, 0, 0)


def acks(client: Client) -> int:
    """How many jobs the broker has counted as done since its start."""
    lines = [line for line in client.metrics().splitlines() if line.startswith("topics_acks_total")]
    assert lines
    return sum(int(float(line.rpartition(" ")[2])) for line in lines)  # of each cell


class Mail(BaseModel):
    to: str


class Order(msgspec.Struct):
    item: str


@dataclass
class Point:
    x: int


def takes_model(mail: Mail) -> str:
    return mail.to


def takes_struct(order: Order) -> str:
    return order.item


def takes_dataclass(point: Point) -> int:
    return point.x


def takes_list(numbers: list[int]) -> int:
    return sum(numbers)


def takes_anything(data) -> Any:
    return data


def takes_job(job: Job, context: JobContext) -> tuple[Any, int]:
    return job.data, context.deliveries


@pytest.mark.parametrize(
    ("handler", "data", "result"),
    [
        (takes_model, {"to": "ann"}, "ann"),
        (takes_struct, {"item": "tea"}, "tea"),
        (takes_dataclass, {"x": 3}, 3),
        (takes_list, [1, 2], 3),
        (takes_anything, {"a": [None]}, {"a": [None]}),
        (takes_job, "x", ("x", 1)),
    ],
)
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_handler_receives_the_type_of_its_annotation(
    client: Client, handler: Callable[..., Any], data: Any, result: Any, asynchronous: bool
) -> None:
    results: list[Any] = []
    worker = Worker(client)

    def done(*arguments: Any) -> None:
        results.append(handler(*arguments))

    async def done_by_asyncio(*arguments: Any) -> None:
        results.append(handler(*arguments))

    given = done_by_asyncio if asynchronous else done
    given.__wrapped__ = handler  # type: ignore[attr-defined]
    given.__annotations__ = handler.__annotations__
    worker.queue("q")(given)
    client.append("q", [data])
    with worker:
        until(lambda: is_done(client))
    assert results == [result]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_job_whose_handler_outlasts_the_lease_is_delivered_once(client: Client, asynchronous: bool) -> None:
    """Before, it was done three times and ended among the dead letters."""
    begun: list[int] = []
    worker = Worker(client)

    def slow(job: Job) -> None:
        begun.append(job.deliveries)
        time.sleep(2.2 * SHORT_S)

    async def slow_by_asyncio(job: Job) -> None:
        begun.append(job.deliveries)
        await asyncio.sleep(2.2 * SHORT_S)

    worker.queue("q", lease=SHORT, concurrency=2)(slow_by_asyncio if asynchronous else slow)
    client.append("q", [1, 2, 3, 4])
    with worker, Client(client.url) as other:
        until(lambda: len(begun) == 4)
        # No other worker gets these jobs meanwhile.
        assert other.claim("q", "other", max=4).jobs == []
        until(lambda: is_done(client))
    assert begun == [1, 1, 1, 1]
    assert figures(client) == (0, 0, 0, 0)
    assert worker.lanes[0].figures()[0]["done"] == 4


def test_a_coroutine_that_blocks_the_event_loop_keeps_its_lease(client: Client) -> None:
    begun: list[int] = []
    worker = Worker(client)

    @worker.queue("q", lease=SHORT)
    async def blocks(job: Job) -> None:
        begun.append(job.deliveries)
        time.sleep(1.4 * SHORT_S)  # noqa: ASYNC251

    client.append("q", [1])
    with worker:
        until(lambda: is_done(client))
    assert begun == [1]


def test_a_coroutine_that_loses_its_lease_is_cancelled_and_its_outcome_is_not_sent(client: Client) -> None:
    """The test acks the job in the worker's name."""
    seen: list[str] = []
    worker = Worker(client)

    @worker.queue("q", lease=SHORT)
    async def coroutine(data: int) -> None:
        try:
            await asyncio.sleep(PATIENCE_S)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    client.append("q", [1])
    with worker:
        until(lambda: figures(client)[1] == 1)
        client.ack("q", worker.node, [1])
        until(lambda: seen)
        # The task continues with other jobs.
        client.append("q", [2])
        until(lambda: figures(client)[1] == 1)
        client.ack("q", worker.node, [2])
        until(lambda: len(seen) == 2)
        until(lambda: worker.lanes[0].idle)
    assert worker.lanes[0].figures()[0]["lost"] == 2


def test_a_plain_function_sees_in_its_context_that_the_lease_is_lost(client: Client) -> None:
    seen: list[bool] = []
    worker = Worker(client)

    @worker.queue("q", lease=SHORT)
    def handler(data: int, context: JobContext) -> None:
        seen.append(context.lost)
        until(lambda: context.lost)
        seen.append(context.lost)

    client.append("q", [1])
    with worker:
        until(lambda: figures(client)[1] == 1)
        client.ack("q", worker.node, [1])
        until(lambda: len(seen) == 2)
    assert seen == [False, True]
    assert worker.lanes[0].figures()[0]["lost"] == 1


def test_the_outcome_of_a_handler_decides_about_its_job(client: Client) -> None:
    tried: Counter[str] = Counter()
    worker = Worker(client)

    def left_s(seq: int) -> float:
        [job] = [each for each in client.leases("q") if each.seq == seq]
        return (job.deadline or 0) / 1000 - time.time()

    @worker.queue("q", concurrency=4, retry=Backoff(first="1ms"))
    async def handler(what: str, context: JobContext) -> None:
        tried[what] += 1
        assert context.queue == "q"
        assert context.deadline > time.monotonic()
        if what == "reject":
            context.reject("no such mailbox")
        elif what == "retry" and context.deliveries == 1:
            context.retry(in_=timedelta(milliseconds=300), reason="later")
        elif what == "fail" and context.deliveries < 3:
            raise ValueError("not yet")
        elif what == "extend":
            context.extend("10m")
            context.progress(part=0.5)
            until(lambda: left_s(context.job.seq) > 500)

    client.append("q", [NewRecord(data="reject", tag="t", meta={"m": 1}), "retry", "fail", "extend"])
    with worker:
        until(lambda: is_done(client))
    assert tried == {"reject": 1, "retry": 2, "fail": 3, "extend": 1}
    [letter] = client.read("dead", include_tags=True, include_meta=True).records
    assert (letter.data, letter.tag) == ("reject", "t")
    assert letter.meta == {
        "m": 1,
        "$dead_letter_from": "q",
        "$dead_letter_deliveries": "1",
        "$dead_letter_src_seq": "1",
        "$dead_letter_reason": "no such mailbox",
    }
    counts = worker.lanes[0].figures()[0]
    assert counts == {"done": 3, "rejected": 1, "retried": 3, "returned": 0, "lost": 0, "unsure": 0}
    assert client.redrive("q").moved == 1
    assert [job.meta for job in client.claim("q", "w").jobs] == [{"m": 1}]


def test_a_job_that_fails_waits_although_its_queue_has_no_backoff(client: Client) -> None:
    """Otherwise the worker would do nothing but fail with it, hundreds of times a second."""
    worker = Worker(client)

    @worker.queue("q")
    def handler(data: object) -> None:
        raise ValueError("always")

    client.append("q", [1])
    with worker:
        until(lambda: figures(client)[2] == 1)


def test_an_unreadable_job_goes_to_the_dead_letters(client: Client) -> None:
    worker = Worker(client)
    worker.queue("q")(takes_struct)
    client.append("q", [{"item": 3}])
    with worker:
        until(lambda: is_done(client))
    [letter] = client.read("dead", include_meta=True).records
    assert "item" in letter.meta["$dead_letter_reason"]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_handler_that_raises_system_exit_only_fails_its_job(client: Client, asynchronous: bool) -> None:
    worker = Worker(client)

    def leaves(data: int) -> None:
        sys.exit("that was all")

    async def leaves_by_asyncio(data: int) -> None:
        sys.exit("that was all")

    worker.queue("q", retry=Backoff(first="1ms"))(leaves_by_asyncio if asynchronous else leaves)
    client.append("q", [1, 2])
    with worker:
        until(lambda: figures(client)[3] == 2)
    assert worker.lanes[0].figures()[0]["retried"] == 6


async def test_cancelled_handler_tasks_return_their_jobs(client: Client) -> None:
    worker = Worker(client)
    tasks: list[asyncio.Task[Any]] = []

    @worker.queue("q")
    async def handler(number: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(task)
        await asyncio.sleep(PATIENCE_S)

    client.append("q", [1])
    async with worker:
        while not tasks:
            await asyncio.sleep(0.01)
        tasks[0].cancel()
        while figures(client) != (1, 0, 0, 0):
            await asyncio.sleep(0.01)
    assert worker.lanes[0].figures()[0]["returned"] == 1


def test_without_a_dead_letter_topic_a_rejected_job_is_not_thrown_away(client: Client) -> None:
    client.delete_topic("plain")
    client.put_topic("plain", type="queue", retry_backoff_ms=60_000)
    worker = Worker(client)
    worker.queue("plain")(takes_struct)
    client.append("plain", [{}])
    with worker:
        until(lambda: figures(client, "plain")[2] == 1)


def test_a_stop_waits_for_running_handlers_and_returns_the_other_jobs(client: Client) -> None:
    release = threading.Event()
    started: list[int] = []
    done: list[int] = []
    worker = Worker(client)

    @worker.queue("q", concurrency=2)
    def handler(number: int, context: JobContext) -> None:
        started.append(number)
        assert release.wait(PATIENCE_S)
        assert context.stopping
        done.append(number)

    client.append("q", [1, 2, 3, 4])
    worker.start()
    until(lambda: len(started) == 2)
    stopping = threading.Thread(target=worker.stop)
    stopping.start()
    until(lambda: worker.stopping and worker.lanes[0].stopping)
    release.set()
    stopping.join()
    assert sorted(done) == [1, 2]
    assert figures(client) == (2, 0, 0, 0)
    assert [job.deliveries for job in client.claim("q", "w", max=2).jobs] == [1, 1]


def test_a_handler_that_outlasts_the_grace_period_returns_its_job_at_once(client: Client) -> None:
    started: list[int] = []
    cancelled: list[int] = []
    worker = Worker(client, grace=0)

    @worker.queue("q")
    async def handler(number: int) -> None:
        started.append(number)
        try:
            await asyncio.sleep(PATIENCE_S)
        except asyncio.CancelledError:
            cancelled.append(number)
            raise

    client.append("q", [1])
    worker.start()
    until(lambda: started == [1])
    worker.stop()
    assert cancelled == [1]
    assert figures(client) == (1, 0, 0, 0)
    assert worker.lanes[0].figures()[0]["returned"] == 1


async def test_coroutines_run_on_the_event_loop_of_the_program(client: Client) -> None:
    loops: list[Any] = []
    worker = Worker(client)

    @worker.queue("q")
    async def handler(number: int) -> None:
        loops.append(asyncio.get_running_loop())

    client.append("q", [1, 2])
    async with worker:
        while not is_done(client):
            await asyncio.sleep(0.01)
    assert loops == [asyncio.get_running_loop()] * 2


def test_an_absent_queue_is_reported_at_once(client: Client) -> None:
    worker = Worker(client)
    worker.queue("nothing")(takes_job)
    with pytest.raises(TopicNotFound):
        worker.run()


def test_a_deleted_queue_ends_the_worker(client: Client) -> None:
    worker = Worker(client)
    worker.queue("q")(takes_job)
    worker.start()
    client.delete_topic("q")
    until(lambda: worker.stopping)
    with pytest.raises(TopicNotFound):
        worker.stop()


@pytest.mark.parametrize(
    "handler",
    [lambda: None, lambda a, b, c: None, lambda *, a: None],
    ids=["no parameter", "three", "by name"],
)
def test_a_handler_takes_a_job_and_perhaps_a_context(client: Client, handler: Callable[..., Any]) -> None:
    with pytest.raises(InvalidRequest):
        Worker(client).queue("q")(handler)


@pytest.mark.parametrize("options", [{"concurrency": 0}, {"lease": "1 year"}, {"lease": "10ms"}])
def test_invalid_options_are_refused(client: Client, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        Worker(client).queue("q", **options)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_ten_thousand_small_jobs_are_done_once(client: Client, asynchronous: bool) -> None:
    jobs = 10_000
    seen: list[int] = []
    worker = Worker(client)

    def small(number: int) -> None:
        seen.append(number)

    async def small_by_asyncio(number: int) -> None:
        seen.append(number)

    worker.queue("q", concurrency=64)(small_by_asyncio if asynchronous else small)
    for first in range(0, jobs, 1000):
        client.append("q", list(range(first, first + 1000)))
    acked = acks(client)
    with worker:
        until(lambda: worker.lanes[0].figures()[0]["done"] == jobs)
    assert sorted(seen) == list(range(jobs))
    assert acks(client) - acked == jobs
    assert figures(client) == (0, 0, 0, 0)


def test_a_full_queue_is_worked_off(client: Client) -> None:
    """Appends are refused until there is room; every accepted job is done."""
    client.delete_topic("full")
    client.put_topic("full", type="queue", cap_records=50, discard="reject")
    seen: list[int] = []
    worker = Worker(client)

    @worker.queue("full", concurrency=4)
    def handler(number: int) -> None:
        seen.append(number)
        time.sleep(0.001)

    refused = 0
    with worker, Client(client.url) as writer:
        for first in range(0, 600, 30):
            while True:
                try:
                    writer.append("full", list(range(first, first + 30)))
                    break
                except TopicFull:
                    refused += 1
                    time.sleep(0.002)
        until(lambda: len(seen) >= 600)
        until(lambda: is_done(client, "full"))
    assert refused
    assert sorted(seen) == list(range(600))


def test_every_job_is_done_over_kills_of_the_broker(tmp_path: Path) -> None:
    """Every job is done at least once, none is acked twice, and none becomes a dead letter."""
    broker = RealBroker(tmp_path)
    broker.start()
    jobs = 400
    seen: Counter[int] = Counter()
    try:
        with Client(broker.url) as client:
            client.put_topic("q", type="queue", max_deliveries=3, dead_letter="dead", durability="fsync")
            client.append("q", list(range(jobs)))
            worker = Worker(client)

            @worker.queue("q", concurrency=8, lease="2s")
            async def handler(number: int) -> None:
                seen[number] += 1
                await asyncio.sleep(0.02)

            with worker:
                for share in (0.25, 0.5):
                    until(lambda: len(seen) >= jobs * share)  # noqa: B023
                    broker.kill()
                    broker.start()
                until(lambda: is_done(client))
            assert set(seen) == set(range(jobs))
            counts = worker.lanes[0].figures()[0]
            assert counts["done"] <= jobs
            # An ack without an answer may have been carried out. No other job is missing.
            assert counts["done"] + counts["unsure"] >= jobs
            assert figures(client)[3] == 0
    finally:
        broker.close()
