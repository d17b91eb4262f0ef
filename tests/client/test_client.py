"""Both clients against a broker in memory: the same calls have the same answers and the same retries."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

import httpx
import pytest

from tests.client.fake_broker import FakeBroker, answer_lost, no_connection, refused, timed_out
from topics_client import (
    AsyncClient,
    Client,
    ConnectionFailed,
    NewRecord,
    NotFound,
    Record,
    RetryPolicy,
    TopicNotFound,
    Unauthorized,
)

EAGER = RetryPolicy(base_s=0.0)


class Blocking:
    """The blocking client behind the async one's interface, so that each test runs with both."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)

        async def call(*arguments: Any, **options: Any) -> Any:
            return method(*arguments, **options)

        async def iterate(*arguments: Any, **options: Any) -> AsyncGenerator[Any]:
            for item in method(*arguments, **options):
                yield item

        return iterate if inspect.isgeneratorfunction(method) else call


@pytest.fixture(params=["blocking", "async"])
async def client(request: pytest.FixtureRequest, fake: FakeBroker) -> AsyncGenerator[Any]:
    transport = httpx.MockTransport(fake)
    if request.param == "async":
        async with AsyncClient("http://fake", http=transport, retry=EAGER) as client:
            yield client
    else:
        with Client("http://fake", http=transport, retry=EAGER) as blocking:
            yield Blocking(blocking)


def test_both_clients_have_the_same_methods_with_the_same_parameters() -> None:
    def surface(kind: type) -> dict[str, list[str]]:
        methods = inspect.getmembers(kind, inspect.isfunction)
        return {name: list(inspect.signature(m).parameters) for name, m in methods if not name.startswith("_")}

    assert surface(Client) == surface(AsyncClient)


async def test_appended_records_are_read_back(client: Any) -> None:
    done = await client.append("t", [{"a": 1}, b"1e400", NewRecord(data="x", tag="g", meta={"m": 1})], node="n1")
    assert (done.first_seq, done.last_seq, list(done.seqs), done.created) == (1, 3, [1, 2, 3], True)
    diff = await client.read("t", include_tags=True)
    assert [record.data_raw for record in diff.records] == [b'{"a":1}', b"1e400", b'"x"']
    assert (diff.records[2].tag, diff.records[2].meta) == ("g", {"m": 1})
    assert (diff.caught_up, diff.next_from_seq, diff.tombstone) == (True, 3, None)


async def test_topics_are_created_described_and_deleted(client: Any) -> None:
    put = await client.put_topic("t", durability="fsync", cap_records=5)
    assert (put.created, put.config["cap_records"]) == (True, 5)
    state = await client.state("t")
    assert (state.topic, state.head_seq, state.config["durability"]) == ("t", 0, "fsync")
    assert (await client.delete_topic("t")).deleted
    assert not (await client.delete_topic("t")).deleted


async def test_an_absent_record_is_reported_with_the_reason(client: Any) -> None:
    await client.append("t", [1, 2])
    assert (await client.get_record("t", 2)).data == 2
    with pytest.raises(NotFound) as caught:
        await client.get_record("t", 9)
    assert caught.value.detail["reason"] == "future"


async def test_records_are_deleted(client: Any) -> None:
    await client.append("t", [1, 2, 3])
    done = await client.delete_records("t", before_seq=3)
    assert (done.deleted, done.count) == (2, 1)


async def test_health_ready_and_metrics(client: Any) -> None:
    assert (await client.health()).status == "ok"
    assert (await client.ready()).topics == 0
    assert "topics_up" in await client.metrics()


async def test_waiting_until_ready_outlasts_a_start(client: Any, fake: FakeBroker) -> None:
    fake.troubles.extend([no_connection, refused(503, "not_ready"), refused(503, "not_ready")])
    assert (await client.wait_until_ready(30.0)).status == "ready"
    assert len(fake.requests) == 4


async def test_a_list_contains_all_pages(client: Any, fake: FakeBroker) -> None:
    names = [f"t{n:02d}" for n in range(7)]
    for name in names:
        await client.put_topic(name)
    await client.put_topic("other")
    fake.requests.clear()
    assert [topic.topic async for topic in client.list_topics("t", page_size=3)] == names
    assert [request.url.params.get("cursor") for request in fake.requests] == [None, "t02", "t05"]


@pytest.mark.parametrize(
    "trouble", [answer_lost, timed_out, no_connection, refused(503, "storage_failed"), refused(507, "storage_full")]
)
async def test_a_repeated_append_is_stored_once(client: Any, fake: FakeBroker, trouble: Any) -> None:
    fake.troubles.extend([trouble, trouble])
    done = await client.append("t", ["once"])
    assert (done.first_seq, done.count) == (1, 1)
    assert fake.topics["t"].records == [b'{"$seq":1,"$ts":1700000000001,"data":"once"}']
    keys = fake.sent_keys()
    assert len(keys) == 3
    assert len(set(keys)) == 1


async def test_each_append_has_a_new_idempotency_key(client: Any, fake: FakeBroker) -> None:
    await client.append("t", [1])
    await client.append("t", [1])
    assert len(set(fake.sent_keys())) == 2
    assert len(fake.topics["t"].records) == 2


async def test_an_idempotency_key_of_the_caller_is_used(client: Any, fake: FakeBroker) -> None:
    await client.append("t", [1], idempotency_key="mine")
    again = await client.append("t", [2], idempotency_key="mine")
    assert fake.sent_keys() == ["mine", "mine"]
    assert (again.deduped, again.payload_differs) == (True, True)


async def test_options_left_out_are_not_sent(client: Any, fake: FakeBroker) -> None:
    await client.append("t", [1], node=None, expected_seq=0, create=True)
    body = json.loads(fake.requests[-1].content)
    assert set(body) == {"records", "idempotency_key", "expected_seq", "create"}


async def test_tail_yields_every_record_and_reports_gaps(client: Any, fake: FakeBroker) -> None:
    await client.append("t", [0, 1, 2, 3, 4])
    fake.topics["t"].evict_floor = 3
    got: list[Any] = []
    async for item in client.tail("t"):
        got.append(item)
        if len(got) == 4:
            break
    gap, *records = got
    assert (gap.gap_from, gap.gap_to, gap.reason, gap.missed_estimate) == (1, 2, "cap", 2)
    assert [record.data for record in records] == [2, 3, 4]


async def test_tail_bridges_a_lost_connection(client: Any, fake: FakeBroker) -> None:
    await client.append("t", [1, 2])
    fake.troubles.extend([None, no_connection, answer_lost])
    tail = client.tail("t")
    assert [(await anext(tail)).data, (await anext(tail)).data] == [1, 2]
    await tail.aclose()


async def test_tail_ends_with_an_error_when_the_topic_is_deleted(client: Any, fake: FakeBroker) -> None:
    await client.append("t", [1])
    tail = client.tail("t")
    await anext(tail)
    await client.delete_topic("t")
    with pytest.raises(TopicNotFound):
        await anext(tail)


async def test_tail_sends_long_polls_and_extends_the_read_timeout(client: Any, fake: FakeBroker) -> None:
    await client.append("t", [1])
    tail = client.tail("t")
    await anext(tail)
    await tail.aclose()
    request = fake.requests[-1]
    wait_ms = json.loads(request.content)["wait_ms"]
    assert wait_ms >= 20_000
    assert request.extensions["timeout"]["read"] > wait_ms / 1000


async def test_a_wrong_key_is_refused_with_advice(client: Any, fake: FakeBroker) -> None:
    fake.key = "secret"
    with pytest.raises(Unauthorized, match="TOPICS_TOKEN"):
        await client.state("t")


def test_the_key_is_sent(fake: FakeBroker) -> None:
    fake.key = "secret"
    with Client("http://fake", token="secret", http=httpx.MockTransport(fake)) as client:
        assert client.health().status == "ok"


def test_each_wait_is_reported_to_the_caller(fake: FakeBroker) -> None:
    told: list[int] = []
    fake.troubles.extend([no_connection, refused(503, "wal_saturated")])
    policy = RetryPolicy(base_s=0.0)
    with Client(
        "http://fake", http=httpx.MockTransport(fake), retry=policy, on_retry=lambda pause: told.append(pause.tries)
    ) as client:
        client.append("t", [1])
    assert told == [1, 2]


async def test_tasks_can_share_a_client(fake: FakeBroker) -> None:
    async with AsyncClient("http://fake", http=httpx.MockTransport(fake)) as client:
        await asyncio.gather(*(client.append("t", [n]) for n in range(20)))
    assert len(fake.topics["t"].records) == 20


def test_a_record_read_can_be_appended_to_another_topic_verbatim(fake: FakeBroker) -> None:
    with Client("http://fake", http=httpx.MockTransport(fake)) as client:
        client.append("t", [NewRecord(data=b'{"a":1.10}', tag="g")])
        records = client.read("t", include_tags=True).records
        client.append("u", records)
        (copy,) = client.read("u", include_tags=True).records
    assert isinstance(copy, Record)
    assert (copy.data_raw, copy.tag) == (b'{"a":1.10}', "g")


def test_a_refused_connection_is_reported_with_the_address() -> None:
    with (
        Client("127.0.0.1:1", retry=RetryPolicy(total_s=0)) as client,
        pytest.raises(ConnectionFailed, match=r"http://127\.0\.0\.1:1 .*refused.*topics serve"),
    ):
        client.health()
