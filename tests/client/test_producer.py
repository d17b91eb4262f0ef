"""The producer against a fake broker: handles, errors, flush, back-pressure, retries, partitions."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import wait
from pathlib import Path

import httpx
import pytest

from tests.client.fake_broker import FakeBroker, error
from topics_client import (
    BufferFull,
    Client,
    ConnectionFailed,
    InvalidRequest,
    NewRecord,
    Producer,
    ProducerClosed,
    RetryPolicy,
    Sent,
    TopicFull,
)
from topics_client.partitioning import partition_of

ROOT = Path(__file__).parents[2]
QUICK = RetryPolicy(base_s=0.001, cap_s=0.01)


@pytest.fixture
def client(fake: FakeBroker) -> Generator[Client]:
    with Client(http=httpx.MockTransport(fake), retry=QUICK) as client:
        client.put_topic("t")
        yield client


def data_of(fake: FakeBroker, topic: str = "t") -> list[object]:
    return [json.loads(record)["data"] for record in fake.topics[topic].records if record is not None]


def batches(fake: FakeBroker) -> list[list[object]]:
    sent = [json.loads(each.content) for each in fake.requests if each.method == "POST"]
    return [[record["data"] for record in body["records"]] for body in sent]


def refused(request: httpx.Request, answer: Callable[[], httpx.Response]) -> httpx.Response:
    return error(422, "topic_full", "The topic is full.")


def lost(request: httpx.Request, answer: Callable[[], httpx.Response]) -> httpx.Response:
    answer()
    raise httpx.ReadError("broken", request=request)


def unreachable(request: httpx.Request, answer: Callable[[], httpx.Response]) -> httpx.Response:
    raise httpx.ConnectError("nobody", request=request)


def test_handles_return_the_place_of_their_records(client: Client, fake: FakeBroker) -> None:
    with Producer(client, batch_records=2) as producer:
        sent = [producer.send("t", number) for number in range(5)]
        assert [each.result(30).seq for each in sent] == [1, 2, 3, 4, 5]
    assert all(each.done() for each in sent)
    assert data_of(fake) == [0, 1, 2, 3, 4]
    assert max(len(batch) for batch in batches(fake)) == 2


def test_a_batch_waits_for_more_records_and_a_flush_does_not(client: Client, fake: FakeBroker) -> None:
    with Producer(client, linger_ms=3_600_000) as producer:
        sent = [producer.send("t", number) for number in range(3)]
        assert not any(each.done() for each in sent)
        producer.flush()
        assert all(each.done() for each in sent)
    assert batches(fake) == [[0, 1, 2]]


def test_a_batch_is_sent_after_linger_ms(client: Client, fake: FakeBroker) -> None:
    with Producer(client, linger_ms=20) as producer:
        first, second = producer.send("t", 1), producer.send("t", 2)
        assert (first.result(30).seq, second.result(30).seq) == (1, 2)
    # Two batches, if the machine took longer than that between the records.
    assert [number for batch in batches(fake) for number in batch] == [1, 2]


def test_send_takes_the_same_records_as_append(client: Client, fake: FakeBroker) -> None:
    with Producer(client, node="till") as producer:
        producer.send("t", {"a": 1}, tag="x", meta={"m": 2})
        producer.send("t", NewRecord(data=3, tag="y"))
        producer.send("t", b"1.10")
        with pytest.raises(InvalidRequest, match=r"record\.data"):
            producer.send("t", object())
    records = [json.loads(record) for record in fake.topics["t"].records if record is not None]
    assert [(record["data"], record.get("$tag"), record.get("meta")) for record in records] == [
        ({"a": 1}, "x", {"m": 2}),
        (3, "y", None),
        (1.1, None, None),
    ]
    assert json.loads(fake.requests[-1].content)["node"] == "till"


def test_an_error_reaches_every_record_of_the_failed_batch_and_no_other(client: Client, fake: FakeBroker) -> None:
    with Producer(client, linger_ms=3_600_000) as producer:
        fake.troubles.extend([None, refused])  # the first request asks for the partitions
        failed = [producer.send("t", number) for number in range(3)]
        with pytest.raises(TopicFull):
            producer.flush(30)
        assert [type(each.exception(30)) for each in failed] == [TopicFull] * 3
        with pytest.raises(TopicFull):
            failed[1].result(30)
        good = producer.send("t", 9)
        producer.flush(30)
        assert good.result(30).seq == 1


def test_an_error_read_from_a_handle_is_not_raised_again(client: Client, fake: FakeBroker) -> None:
    with Producer(client) as producer:
        fake.troubles.extend([None, refused])
        failed = producer.send("t", 1)
        assert isinstance(failed.exception(30), TopicFull)


def test_close_raises_errors_of_records_without_a_read_handle(client: Client, fake: FakeBroker) -> None:
    producer = Producer(client)
    fake.troubles.extend([None, refused])
    producer.send("t", 1)
    with pytest.raises(TopicFull):
        producer.close()
    with pytest.raises(ProducerClosed):
        producer.send("t", 2)


def test_a_request_without_an_answer_is_repeated_with_the_same_key(client: Client, fake: FakeBroker) -> None:
    with Producer(client) as producer:
        fake.troubles.extend([None, lost, unreachable])
        assert producer.send("t", 1).result(30).seq == 1
        assert producer.send("t", 2).result(30).seq == 2
    assert data_of(fake) == [1, 2]
    keys = [json.loads(each.content)["idempotency_key"] for each in fake.requests if each.method == "POST"]
    first, second, third, other = keys
    assert first == second == third != other


def test_a_record_without_an_answer_has_an_unknown_outcome(fake: FakeBroker) -> None:
    once = RetryPolicy(total_s=0)
    with Client(http=httpx.MockTransport(fake), retry=once) as client, Producer(client) as producer:
        client.put_topic("t")
        fake.troubles.extend([None, lost])
        found = producer.send("t", 1).exception(30)
        assert isinstance(found, ConnectionFailed)
        assert found.outcome == "unknown"


def test_each_partition_has_at_most_one_request_and_partitions_proceed_independently(
    client: Client, fake: FakeBroker
) -> None:
    """A delayed request of one topic does not delay another topic, and its own topic sends nothing else meanwhile."""
    held, go = threading.Event(), threading.Event()

    def hold(request: httpx.Request, answer: Callable[[], httpx.Response]) -> httpx.Response:
        held.set()
        assert go.wait(30)
        return answer()

    client.put_topic("u")
    with Producer(client, linger_ms=0, batch_records=1) as producer:
        fake.troubles.extend([None, hold])
        waiting = [producer.send("t", number) for number in range(3)]
        assert held.wait(30)
        assert producer.send("u", 1).result(30).seq == 1
        assert not any(each.done() for each in waiting)
        go.set()
    assert data_of(fake) == [0, 1, 2]


def test_a_full_buffer_blocks_the_caller_until_a_timeout(client: Client, fake: FakeBroker) -> None:
    go = threading.Event()

    def hold(request: httpx.Request, answer: Callable[[], httpx.Response]) -> httpx.Response:
        assert go.wait(30)
        return answer()

    producer = Producer(client, linger_ms=0, batch_records=1, buffer_bytes=1000, max_block_s=0.05)
    fake.troubles.extend([None, hold])
    taken = 0
    full: BufferFull | None = None
    while full is None and taken < 100:
        try:
            producer.send("t", "x" * 100)
            taken += 1
        except BufferFull as error:
            full = error
    assert full is not None
    assert full.transient
    assert 1 <= taken <= 1000 // 100
    go.set()
    producer.flush(30)
    producer.send("t", "y" * 5000)  # larger than the buffer, which is empty
    producer.close()
    assert len(data_of(fake)) == taken + 1


def test_a_full_buffer_sends_lingering_batches_at_once(client: Client, fake: FakeBroker) -> None:
    """Although its batches would linger for an hour."""
    with Producer(client, linger_ms=3_600_000, buffer_bytes=2000) as producer:
        for number in range(200):
            producer.send("t", number)
    assert data_of(fake) == [*range(200)]


def test_a_caller_makes_way_for_the_senders_when_they_are_behind(
    client: Client, fake: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()
    aside: list[int] = []

    def hold(request: httpx.Request, answer: Callable[[], httpx.Response]) -> httpx.Response:
        assert go.wait(30)
        return answer()

    # Only full batches are sent: one that lingered would be on its way when the next record comes.
    with Producer(client, batch_records=2, linger_ms=3_600_000) as producer:
        monkeypatch.setattr(producer, "_step_aside", lambda: aside.append(number))
        for number in range(4):
            producer.send("t", number)
            if number % 2:
                producer.flush(30)
        assert aside == []
        fake.troubles.append(hold)
        sent: list[Sent] = []
        for number in range(4, 10):
            sent.append(producer.send("t", number))
            if number == 5:
                # The only batch: it is being sent, or will be, before another one is full.
                while producer._batching.has_ready:  # pyright: ignore[reportPrivateUsage]
                    time.sleep(0.001)
        assert aside == [7, 9]
        go.set()
        assert sent[-1].result(30).seq == 10


def test_a_flush_timeout_loses_no_record(client: Client, fake: FakeBroker) -> None:
    go = threading.Event()

    def hold(request: httpx.Request, answer: Callable[[], httpx.Response]) -> httpx.Response:
        assert go.wait(30)
        return answer()

    with Producer(client) as producer:
        fake.troubles.extend([None, hold])
        sent = producer.send("t", 1)
        with pytest.raises(TimeoutError):
            producer.flush(0.01)
        with pytest.raises(TimeoutError):
            sent.result(0.01)
        go.set()
    assert data_of(fake) == [1]


def test_many_threads_share_a_producer(client: Client, fake: FakeBroker) -> None:
    with Producer(client, batch_records=7, linger_ms=1) as producer:

        def work(name: int) -> None:
            for number in range(100):
                producer.send("t", [name, number])

        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    stored = data_of(fake)
    for name in range(4):
        assert [number for by, number in stored if by == name] == [*range(100)]  # type: ignore[misc]


def test_a_handle_can_be_a_future_and_can_be_awaited(client: Client) -> None:
    async def send(producer: Producer) -> int:
        first, second = producer.send("t", 1), producer.send("t", 2)
        return (await first).seq + (await second).seq

    with Producer(client) as producer:
        assert asyncio.run(send(producer)) == 3
        futures = [producer.send("t", number).future() for number in range(3)]
        assert not wait(futures, 30).not_done
        assert [future.result().seq for future in futures] == [3, 4, 5]


def test_a_future_has_the_error(client: Client, fake: FakeBroker) -> None:
    with Producer(client) as producer:
        fake.troubles.extend([None, refused])
        future = producer.send("t", 1).future()
        assert isinstance(future.exception(30), TopicFull)


def test_closing_the_client_first_fails_the_waiting_records(fake: FakeBroker) -> None:
    client = Client(http=httpx.MockTransport(fake), retry=QUICK)
    producer = Producer(client, linger_ms=3_600_000)
    sent = producer.send("t", 1)
    client.close()
    with pytest.raises(RuntimeError):
        producer.close()
    assert sent.exception(0) is not None


def test_invalid_limits_are_refused(client: Client) -> None:
    for records in (0, 10_001):
        with pytest.raises(InvalidRequest):
            Producer(client, batch_records=records)
    with pytest.raises(InvalidRequest):
        Producer(client, senders=0)
    with pytest.raises(InvalidRequest, match="options"):
        Producer(client, node=object())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_a_program_that_ends_without_close_loses_no_record(fake: FakeBroker, fake_url: str) -> None:
    program = (
        "import sys; from topics_client import Client, Producer\n"
        "producer = Producer(Client(sys.argv[1]), linger_ms=3_600_000)\n"
        "for number in range(10): producer.send('t', number)\n"
    )
    subprocess.run([sys.executable, "-c", program, fake_url], cwd=ROOT, check=True, timeout=60)
    assert data_of(fake) == [*range(10)]


def test_records_of_a_topic_share_batches_whether_they_are_plain_or_not(client: Client, fake: FakeBroker) -> None:
    with Producer(client, batch_records=4, linger_ms=3_600_000) as producer:
        sent = [
            producer.send("t", 0),
            producer.send("t", 1, tag="x"),
            producer.send("t", 2, partition=0),
            producer.send("t", NewRecord(data=3)),
            producer.send("t", b"4"),
        ]
        producer.flush(30)
        assert [each.result(0).seq for each in sent] == [1, 2, 3, 4, 5]
    assert batches(fake) == [[0, 1, 2, 3], [4]]


def test_tags_map_to_the_same_partitions_as_in_kafka() -> None:
    # From org.apache.kafka.common.utils.Utils.murmur2, as in the tests of Kafka's clients.
    assert partition_of("21", 1 << 31) == (-973932308) & 0x7FFFFFFF
    assert partition_of("foobar", 1 << 31) == (-790332482) & 0x7FFFFFFF
    assert partition_of("a-little-bit-long-string", 1 << 31) == (-985981536) & 0x7FFFFFFF
