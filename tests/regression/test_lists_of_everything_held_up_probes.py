"""A list of everything was built in one round of the event loop: Kafka's Metadata, DescribeConfigs and ListOffsets, and
the topics of REST v3. Now other work has rounds in between, and Kafka's lists are built one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.content.slices import EACH_BYTES, SLICE_BYTES
from broker.kafka.apis import ApiKey
from broker.kafka.calls import configs, list_offsets, metadata
from broker.kafka.codec.schema import encode
from broker.kafka.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from broker.kafka.messages.metadata import MetadataRequest
from broker.kafka.messages.positions import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from broker.proxy import V3
from tests.http.hot_server import HotServer
from tests.kafka.server import KafkaServer
from tests.support.unread import get

CLIENTS = 4
TOPICS = 300


class RoundCounter:
    """Counts rounds of the loop, and the calls in each."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._now = 0
        self.done: dict[int, int] = {}
        self._loop.call_soon(self._count)

    def _count(self) -> None:
        self._now += 1
        self._loop.call_soon(self._count)

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with each call counted."""

        def counting(*arguments: Any, **more: Any) -> Any:
            self.done[self._now] = self.done.get(self._now, 0) + 1
            return function(*arguments, **more)

        return counting


METADATA = encode(MetadataRequest(topics=None), 4)
CONFIGS = encode(
    DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=2, resource_name=f"t-{number}") for number in range(TOPICS)]
    ),
    1,
)
OFFSETS = encode(
    ListOffsetsRequest(
        topics=[
            ListOffsetsTopic(name=f"t-{number}", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
            for number in range(TOPICS)
        ]
    ),
    1,
)


@pytest.mark.parametrize(
    ("api", "version", "body", "module", "function", "each"),
    [
        (ApiKey.METADATA, 4, METADATA, metadata, "_described", EACH_BYTES),
        (ApiKey.DESCRIBE_CONFIGS, 1, CONFIGS, configs, "_described", configs._RESOURCE_BYTES),  # pyright: ignore[reportPrivateUsage]
        (ApiKey.LIST_OFFSETS, 1, OFFSETS, list_offsets, "_listed", EACH_BYTES),
    ],
)
async def test_lists_of_kafka_clients_are_made_in_slices(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    api: ApiKey,
    version: int,
    body: bytes,
    module: Any,
    function: str,
    each: int,
) -> None:
    rounds = RoundCounter()
    monkeypatch.setattr(module, function, rounds.counted(getattr(module, function)))
    async with KafkaServer(tmp_path) as server:
        for number in range(TOPICS):
            await server.engine.put_topic(f"t-{number}")
        wires = [await server.connect() for _ in range(CLIENTS)]
        for wire in wires:
            wire.send(api, version, body)
        answers = {bytes(answer) for _, answer in [await wire.answer() for wire in wires]}
    assert len(answers) == 1
    assert answers.pop().count(b"t-") == TOPICS
    assert sum(rounds.done.values()) == CLIENTS * TOPICS
    assert max(rounds.done.values()) <= SLICE_BYTES / each


async def test_the_topics_of_v3_are_listed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = RoundCounter()
    monkeypatch.setattr(V3, "topic", rounds.counted(V3.topic))
    async with HotServer() as server:
        for number in range(TOPICS):
            await server.topic(f"t-{number}")
        clusters: Any = (await server.ask(get("/v3/clusters"))).body
        wires = [await server.connect() for _ in range(CLIENTS)]
        for wire in wires:
            wire.send(get(f"/v3/clusters/{clusters['data'][0]['cluster_id']}/topics"))
        for wire in wires:
            answer = await wire.answer()
            assert [each["topic_name"] for each in answer.body["data"]] == sorted(f"t-{n}" for n in range(TOPICS))
            assert answer.body["kind"] == "KafkaTopicList"
            assert answer.body["metadata"]["next"] is None
    assert sum(rounds.done.values()) == CLIENTS * TOPICS
    assert max(rounds.done.values()) <= SLICE_BYTES / EACH_BYTES
