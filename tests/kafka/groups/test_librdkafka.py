"""Groups of librdkafka consumers: assignments while members join and leave; commits and where they are visible."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from storage import TopicConfig
from tests.kafka.groups.reading import PATIENCE_S, held, poll, until_shared, values
from tests.kafka.groups.server import Server

TOPICS = ("a", "b", "c")


def fill(produce: Callable[..., None], *each: str) -> list[str]:
    """The same values in each topic."""
    for topic in TOPICS:
        produce(topic, *(f"{topic}{value}" for value in each))
    return sorted(f"{topic}{value}" for topic in TOPICS for value in each)


def test_three_members_share_the_partitions_and_every_record_is_read_once(
    member: Callable[..., Consumer], produce: Callable[..., None]
) -> None:
    wanted = fill(produce, "1")
    members = [member("g", *TOPICS) for _ in range(3)]
    found = until_shared(members, each=1)
    wanted = sorted([*wanted, *fill(produce, "2", "3")])
    found += poll(members, lambda more: len(found) + len(more) >= len(wanted))
    assert values(found) == wanted


@pytest.mark.one_cell("looks into the engine")
def test_members_share_partitions_and_each_partition_has_an_offset(
    server: Server, member: Callable[..., Consumer]
) -> None:
    server.put_topic("p", TopicConfig(partitions=3))
    members = [member("g", "p") for _ in range(3)]
    until_shared(members, each=1)
    producer = Producer({"bootstrap.servers": server.address, "log_level": 0})
    for number in range(60):  # the client's own choice may be one partition for all
        producer.produce("p", str(number).encode(), partition=number % 3)
    assert producer.flush(PATIENCE_S) == 0
    found = poll(members, lambda found: len(found) >= 60)
    assert len(set(values(found))) == 60
    for each in members:
        each.commit(asynchronous=False)
    heads = {p: server.engine.topic(f"p/{p}" if p else "p").log.head for p in range(3)}
    assert sum(heads.values()) == 60
    assert {each.partition: each.offset for each in server.broker.kafka_offsets.all("g")} == heads


def test_other_members_continue_after_the_commits_of_a_leaving_member(
    member: Callable[..., Consumer], produce: Callable[..., None]
) -> None:
    fill(produce, "1")
    members = [member("g", *TOPICS) for _ in range(3)]
    found = until_shared(members, each=1)
    found += poll(members, lambda more: len(found) + len(more) >= 3)
    for each in members:
        each.commit(asynchronous=False)
    members.pop().close()
    poll(members, lambda _: sum(len(held(each)) for each in members) == 3)
    wanted = fill(produce, "2")
    assert values(poll(members, lambda more: len(more) >= 3)) == wanted


def test_uncommitted_records_are_delivered_to_the_next_member(
    member: Callable[..., Consumer], produce: Callable[..., None]
) -> None:
    produce("a", "1", "2", "3")
    first = member("g", "a")
    found = poll([first], lambda found: len(found) == 3)
    first.commit(found[0], asynchronous=False)
    first.close()
    assert values(poll([member("g", "a")], lambda found: len(found) == 2)) == ["2", "3"]


@pytest.mark.one_cell("looks into the engine")
def test_a_committed_offset_is_a_consumer_of_the_http_api(
    server: Server, member: Callable[..., Consumer], produce: Callable[..., None]
) -> None:
    produce("a", "1", "2", "3")
    client = member("team/ü")
    [committed] = client.commit(offsets=[TopicPartition("a", 0, 2, metadata="half way ½")], asynchronous=False)
    assert committed.error is None
    [state] = server.engine.consumers.list("a")
    assert (state.consumer, state.cursor_seq, state.durable_seq) == ("group:team%2F%C3%BC", 2, 2)
    [found] = client.committed([TopicPartition("a", 0)])
    assert (found.offset, found.metadata) == (2, "half way ½")

    async def back() -> None:
        await server.engine.consumers.seek("a", state.consumer, seq=1)

    server.run(back)
    [found] = client.committed([TopicPartition("a", 0)])
    assert (found.offset, found.metadata) == (1, None)
    reader = member("team/ü", "a")
    assert values(poll([reader], lambda found: len(found) == 2)) == ["2", "3"]


@pytest.mark.one_cell("looks into the engine")
def test_offsets_can_be_committed_backwards(
    server: Server, member: Callable[..., Consumer], produce: Callable[..., None]
) -> None:
    produce("a", "1", "2", "3")
    client = member("g")
    for offset in (3, 1):
        client.commit(offsets=[TopicPartition("a", 0, offset)], asynchronous=False)
        assert client.committed([TopicPartition("a", 0)])[0].offset == offset
        assert server.engine.consumers.list("a")[0].durable_seq == offset


@pytest.mark.parametrize(
    ("topic", "partition", "offset", "name"),
    [
        ("a", 7, 1, "UNKNOWN_TOPIC_OR_PART"),
        ("none", 0, 0, "UNKNOWN_TOPIC_OR_PART"),
    ],
)
def test_an_offset_of_an_unknown_partition_is_refused(
    member: Callable[..., Consumer], produce: Callable[..., None], topic: str, partition: int, offset: int, name: str
) -> None:
    produce("a", "1", "2", "3")
    client = member("g")
    with pytest.raises(KafkaException) as refused:
        client.commit(offsets=[TopicPartition(topic, partition, offset)], asynchronous=False)
    assert refused.value.args[0].name() == name
    assert client.committed([TopicPartition("a", 0)])[0].offset < 0


@pytest.mark.one_cell("looks into the engine")
def test_returning_static_member_causes_no_rebalance(
    server: Server, member: Callable[..., Consumer], produce: Callable[..., None]
) -> None:
    fill(produce, "1")
    other = member("g", *TOPICS)
    first = member("g", *TOPICS, group_instance_id="one")
    poll([other, first], lambda _: {len(held(each)) for each in (other, first)} == {1, 2})
    before, generation = held(first), server.broker.kafka_groups.describe("g").generation
    first.close()
    again = member("g", *TOPICS, group_instance_id="one")
    poll([other, again], lambda _: held(again) == before)
    assert server.broker.kafka_groups.describe("g").generation == generation


def test_the_first_of_two_members_with_one_instance_id_is_fenced(
    member: Callable[..., Consumer], produce: Callable[..., None]
) -> None:
    produce("a", "1")
    first = member("g", "a", group_instance_id="one")
    poll([first], lambda found: len(found) == 1)
    second = member("g", "a", group_instance_id="one")
    poll([second], lambda _: bool(held(second)))
    with pytest.raises((AssertionError, KafkaException), match=r"FENCED|fenced"):
        poll([first], lambda _: False)


@pytest.mark.one_cell("restarts the engine")
def test_group_continues_after_a_restart_of_the_broker(
    server: Server, member: Callable[..., Consumer], produce: Callable[..., None]
) -> None:
    fill(produce, "1")
    members = [member("g", *TOPICS) for _ in range(3)]
    found = until_shared(members, each=1)
    found += poll(members, lambda more: len(found) + len(more) >= 3)
    for each in members:
        each.commit(asynchronous=False)
    generation = server.broker.kafka_groups.describe("g").generation
    server.restart()
    wanted = fill(produce, "2")
    assert values(poll(members, lambda more: len(more) >= 3)) == wanted
    assert server.broker.kafka_groups.describe("g").generation > generation


def test_a_member_that_stops_polling_loses_its_partitions(
    member: Callable[..., Consumer], produce: Callable[..., None]
) -> None:
    fill(produce, "1")
    silent = member("g", *TOPICS, max_poll_interval_ms=6000)
    poll([silent], lambda found: len(found) == 3)
    other = member("g", *TOPICS)
    poll([other], lambda found: len(held(other)) == 3 and len(found) == 3)


@pytest.mark.one_cell("looks into the engine")
def test_the_admin_client_sees_describes_and_deletes_groups(
    server: Server, member: Callable[..., Consumer], produce: Callable[..., None]
) -> None:
    produce("a", "1", "2")
    client = member("g", "a", client_id="me")
    poll([client], lambda found: len(found) == 2)
    client.commit(asynchronous=False)
    member("simple").commit(offsets=[TopicPartition("a", 0, 1)], asynchronous=False)
    admin = AdminClient({"bootstrap.servers": server.address})
    listed = admin.list_consumer_groups().result(10)
    assert {each.group_id: each.state for each in listed.valid} == {
        "g": ConsumerGroupState.STABLE,
        "simple": ConsumerGroupState.EMPTY,
    }
    stable = admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(10)
    assert [each.group_id for each in stable.valid] == ["g"]
    described = admin.describe_consumer_groups(["g"])["g"].result(10)
    [one] = described.members
    assert (one.client_id, one.assignment.topic_partitions) == ("me", [TopicPartition("a", 0)])
    with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups(["g"])["g"].result(10)
    client.close()
    admin.delete_consumer_groups(["g"])["g"].result(10)
    left: list[Any] = server.engine.consumers.list("a")
    assert [each.consumer for each in left] == ["group:simple"]
    assert member("g").committed([TopicPartition("a", 0)])[0].offset < 0


def test_a_group_with_one_member_begins_without_delay(
    member: Callable[..., Consumer], produce: Callable[..., None]
) -> None:
    produce("a", "1")
    took_s: list[float] = []
    while not took_s or took_s[-1] >= 2:  # a pause of this process may be longer, but not each time
        assert len(took_s) < 4, took_s
        began = time.monotonic()
        poll([member(f"g{len(took_s)}", "a")], lambda found: len(found) == 1)
        took_s.append(time.monotonic() - began)
