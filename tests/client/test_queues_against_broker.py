"""The client's calls of queues against a real broker."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing
from itertools import islice
from pathlib import Path

import httpx
import pytest

from tests.client.real_broker import RealBroker
from topics_client import AsyncClient, Client, InvalidRequest, LeaseLost, NotAQueue, RetryPolicy, TopicNotFound


@pytest.fixture
def client(client: Client) -> Client:
    """The broker has a queue."""
    client.put_topic("q", type="queue")
    return client


def figures(client: Client) -> dict[str, object]:
    return client.state("q").queue or {}


def test_jobs_are_claimed_and_settled(client: Client) -> None:
    client.append("q", [{"n": 1}, {"n": 2}, {"n": 3}])
    claimed = client.claim("q", "w", max=2, lease_ms=60_000)
    assert ([job.data for job in claimed.jobs], claimed.ready) == ([{"n": 1}, {"n": 2}], 1)
    first, second = claimed.jobs
    extended = client.extend("q", "w", [first], 90_000)
    assert extended.deadlines[1] > first.deadline
    given_back = client.nack("q", "w", [second], delay_ms=0, reason="r")
    assert (given_back.count, given_back.ready) == (1, 2)
    done = client.ack("q", "w", [first, second, 3], skip_lost=True)
    assert (done.count, done.skipped, done.in_flight) == (1, [2, 3], 0)


def test_an_empty_claim_is_no_error(client: Client) -> None:
    assert client.claim("q", "w", wait_ms=1).jobs == []


def test_a_claim_repeated_after_a_lost_answer_returns_the_same_jobs(broker: RealBroker, client: Client) -> None:
    client.append("q", [1, 2])
    with Client(broker.url, http=LosesOneAnswer()) as unlucky:
        claimed = unlucky.claim("q", "w")
    assert [job.seq for job in claimed.jobs] == [1]
    assert figures(client)["in_flight"] == 1


class LosesOneAnswer(httpx.HTTPTransport):
    """The first answer is lost."""

    lost = False

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = super().handle_request(request)
        if self.lost:
            return answer
        self.lost = True
        answer.close()
        raise httpx.ReadError("Connection reset", request=request)


def test_an_ack_repeated_after_a_lost_answer_counts_once(broker: RealBroker, client: Client) -> None:
    client.append("q", [1])
    jobs = client.claim("q", "w").jobs
    with Client(broker.url, http=LosesOneAnswer()) as unlucky:
        done = unlucky.ack("q", "w", jobs)  # no LeaseLost: the first attempt did it
    assert (done.count, done.skipped) == (0, [1])
    assert client.state("q").count == 0


def test_each_refusal_has_an_error_class(client: Client) -> None:
    client.put_topic("log")
    with pytest.raises(NotAQueue):
        client.claim("log", "w")
    with pytest.raises(TopicNotFound):
        client.claim("absent", "w")
    with pytest.raises(LeaseLost) as caught:
        client.ack("q", "w", [5], strict=True)
    assert caught.value.detail["seqs"] == [5]
    for name, kind in (("log", NotAQueue), ("absent", TopicNotFound)):
        with pytest.raises(kind):
            next(client.work(name, "w"))


def test_a_claim_of_a_paused_queue_is_empty(client: Client) -> None:
    client.append("q", [1])
    assert client.pause("q").paused is True
    assert client.claim("q", "w").jobs == []
    assert client.resume("q").paused is False
    assert len(client.claim("q", "w").jobs) == 1


def test_jobs_are_listed_page_by_page(client: Client) -> None:
    client.append("q", list(range(5)))
    client.claim("q", "w", max=2)
    assert [job.seq for job in client.leases("q", page_size=2)] == [1, 2, 3, 4, 5]
    assert [(job.seq, job.node) for job in client.leases("q", "leased", page_size=1)] == [(1, "w"), (2, "w")]


def test_a_purge_returns_the_number_of_purged_jobs(client: Client) -> None:
    client.append("q", [1, 2, 3])
    client.claim("q", "w")
    assert client.purge("q", ["delayed"]).purged == 0
    assert client.purge("q").purged == 2


def test_a_purge_in_several_calls_spares_what_is_appended_meanwhile(client: Client) -> None:
    client.append("q", list(range(5)))
    head = client.state("q").head_seq
    purged: list[int] = []
    while not purged or purged[-1] == 2:
        purged.append(client.purge("q", max=2, through_seq=head).purged)
        client.append("q", ["late"])
    assert purged == [2, 2, 1]
    assert [job.seq for job in client.leases("q")] == [6, 7, 8]
    with pytest.raises(InvalidRequest):
        client.purge("q", max=0)


def test_dead_jobs_are_brought_back(client: Client) -> None:
    client.put_topic("q", type="queue", max_deliveries=1, dead_letter="dead")
    client.append("q", [1])
    client.nack("q", "w", client.claim("q", "w").jobs)
    while figures(client)["dead_lettered"] != 1:
        time.sleep(0.01)
    assert client.redrive("q", dry_run=True).moved == 1
    assert (client.redrive("q").moved, client.redrive("q").moved) == (1, 0)
    assert client.claim("q", "w").jobs[0].data == 1


def test_work_yields_jobs_and_returns_the_rest_when_closed(client: Client) -> None:
    client.append("q", [1, 2, 3])
    seen: list[int] = []
    with closing(client.work("q", "w")) as jobs:
        for job in jobs:
            seen.append(job.data)
            if len(seen) == 3:
                break
            assert client.ack("q", "w", [job]).count == 1
    assert seen == [1, 2, 3]
    while figures(client)["in_flight"]:
        time.sleep(0.01)
    assert figures(client)["ready"] == 1


def test_work_ends_when_the_queue_is_deleted(client: Client) -> None:
    client.append("q", [1])
    jobs = client.work("q", "w", lease_ms=1000)
    next(jobs)
    client.delete_topic("q")
    with pytest.raises(TopicNotFound):
        next(jobs)


def test_work_outlives_a_kill(tmp_path: Path) -> None:
    broker = RealBroker(tmp_path)
    try:
        broker.start()
        with Client(broker.url, retry=RetryPolicy(total_s=60, cap_s=0.2)) as client:
            client.put_topic("q", type="queue")
            client.append("q", [1, 2])
            jobs = client.work("q", "w", lease_ms=1000)
            first = next(jobs)
            broker.kill()
            broker.start()
            again = next(jobs)
            assert (first.data, again.data) == (1, 1)
            with pytest.raises(LeaseLost, match="Not leased to w any more in q: 1"):
                client.ack("q", "w", [first])
            assert client.ack("q", "w", [first], skip_lost=True).skipped == [1]
            assert client.ack("q", "w", [again]).count == 1
            assert next(jobs).data == 2
            jobs.close()
    finally:
        broker.close()


def test_without_a_broker_work_says_so() -> None:
    with (
        Client("http://127.0.0.1:1", retry=RetryPolicy(total_s=0)) as client,
        pytest.raises(Exception, match="No broker can be reached"),
    ):
        next(client.work("q", "w"))


def test_the_asyncio_client_works_too(broker: RealBroker, client: Client) -> None:
    async def run() -> None:
        async with AsyncClient(broker.url) as other:
            await other.append("q", [1, 2, 3, 4])
            [job] = (await other.claim("q", "w")).jobs
            assert (await other.extend("q", "w", [job], 60_000)).count == 1
            assert (await other.nack("q", "w", [job], penalty=False)).count == 1
            seen: list[int] = []
            jobs = other.work("q", "v", max=2)
            async for job in jobs:
                seen.append(job.data)
                assert (await other.ack("q", "v", [job])).count == 1
                if len(seen) == 3:
                    break
            await jobs.aclose()
            assert seen == [1, 2, 3]
            assert (await other.pause("q")).paused
            assert not (await other.resume("q")).paused
            while [job.state async for job in other.leases("q")] != ["ready"]:
                await asyncio.sleep(0.01)
            assert (await other.redrive("q", source="log")).moved == 0
            await other.append("q", [5])
            assert (await other.purge("q", max=1, through_seq=4)).purged == 1
            assert (await other.purge("q", max=1, through_seq=4)).purged == 0
            assert (await other.purge("q")).purged == 1
            with pytest.raises(TopicNotFound):
                await anext(other.work("absent", "w"))

    client.put_topic("log")
    asyncio.run(run())


def test_work_holds_up_to_max_jobs_at_the_same_time(client: Client) -> None:
    client.append("q", list(range(10)))
    with closing(client.work("q", "w", max=4)) as jobs:
        batch = list(islice(jobs, 4))
        assert figures(client)["in_flight"] == 4
        assert client.ack("q", "w", batch).count == 4
        assert [job.seq for job in islice(jobs, 4)] == [5, 6, 7, 8]
