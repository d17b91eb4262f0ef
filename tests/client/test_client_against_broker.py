"""The client library against a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice

import pytest

from tests.client.real_broker import RealBroker
from topics_client import (
    AsyncClient,
    Client,
    Conflict,
    NewRecord,
    NotFound,
    Record,
    SeqConflict,
    Tombstone,
    TopicFull,
    TopicNotFound,
)


def short(items: Iterator[Record | Tombstone], count: int) -> list[object]:
    return [item.data if isinstance(item, Record) else item.reason for item in islice(items, count)]


def test_appended_json_is_read_back_byte_for_byte(client: Client) -> None:
    texts = [b'{"a": 1e400,"a":123456789012345678901234567890}', b"1.10", '"é\\u00e9"'.encode(), b"[ ]"]
    done = client.append("t", [NewRecord(data=texts[0], tag="g", node="n", meta=b'{"k": 1.0}'), *texts[1:]])
    assert (done.created, done.first_seq, done.last_seq) == (True, 1, 4)
    records = client.read("t", include_tags=True).records
    assert [record.data_raw for record in records] == texts
    assert (records[0].tag, records[0].node, records[0].meta_raw) == ("g", "n", b'{"k": 1.0}')
    assert client.get_record("t", 1) == records[0]


def test_an_absent_record_is_reported_with_the_reason(client: Client) -> None:
    client.append("t", [1])
    with pytest.raises(NotFound) as caught:
        client.get_record("t", 2)
    assert caught.value.detail["reason"] == "future"


def test_a_repeated_idempotency_key_stores_no_record(client: Client) -> None:
    first = client.append("t", [1, 2], idempotency_key="k")
    again = client.append("t", [1, 2], idempotency_key="k")
    assert (again.deduped, list(again.seqs)) == (True, list(first.seqs))
    assert client.state("t").head_seq == 2


def test_each_refusal_has_an_error_class(client: Client) -> None:
    with pytest.raises(TopicNotFound):
        client.append("t", [1], create=False)
    client.put_topic("t", cap_records=1, discard="reject")
    client.append("t", [1])
    with pytest.raises(TopicFull):
        client.append("t", [2])
    with pytest.raises(SeqConflict) as caught:
        client.append("t", [2], expected_seq=7)
    assert caught.value.detail == {"expected_seq": 7, "head_seq": 1}
    with pytest.raises(Conflict):
        client.put_topic("t", type="queue")
    with pytest.raises(Conflict):
        client.delete_topic("t", if_empty=True)


def test_topic_settings_are_returned_as_given(client: Client) -> None:
    put = client.put_topic("t", durability="fsync", ttl_ms=5000, idempotency_window_ms=7)
    assert put.created
    config = client.state("t").config
    assert (config["durability"], config["ttl_ms"], config["idempotency_window_ms"]) == ("fsync", 5000, 7)


def test_a_list_contains_all_pages(client: Client) -> None:
    names = sorted(f"page.{n}" for n in range(7))
    for name in names:
        client.put_topic(name)
    client.put_topic("other")
    assert [topic.topic for topic in client.list_topics("page.", page_size=3)] == names


def test_records_are_deleted_by_seq_and_by_tag(client: Client) -> None:
    client.append("t", [NewRecord(data=n, tag=f"x.{n % 2}") for n in range(6)])
    assert client.delete_records("t", before_seq=3).deleted == 2
    assert client.delete_records("t", match=["tag", "Glob", "x.1*"]).deleted == 2
    assert [record.data for record in client.read("t").records] == [2, 4]


def test_tail_reports_evicted_records_and_continues(client: Client) -> None:
    client.put_topic("t", cap_records=2)
    client.append("t", [0, 1])
    client.append("t", [2, 3])
    assert short(client.tail("t"), 3) == ["cap", 2, 3]


def test_tail_notices_a_topic_made_again(client: Client) -> None:
    client.append("t", ["old"])
    tail = client.tail("t")
    assert short(tail, 1) == ["old"]
    client.delete_topic("t")
    client.append("t", ["new 1", "new 2"])
    assert short(tail, 3) == ["recreated", "new 1", "new 2"]


async def test_an_async_tail_wakes_up_for_a_new_record(client: Client, broker: RealBroker) -> None:
    async with AsyncClient(broker.url) as reader, AsyncClient(broker.url) as writer:
        await writer.put_topic("t")
        tail = reader.tail("t")
        waiting = asyncio.ensure_future(anext(tail))
        await writer.append("t", ["hello"])
        item = await asyncio.wait_for(waiting, 20)
        await tail.aclose()
    assert isinstance(item, Record)
    assert item.data == "hello"


def test_metrics_health_and_ready(client: Client) -> None:
    assert "topics_" in client.metrics()
    assert client.health().cluster_id
    assert client.ready().status == "ready"
