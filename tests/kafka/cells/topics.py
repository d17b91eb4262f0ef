"""One topic in each cell."""

from __future__ import annotations

from broker.kafka.apis import ApiKey
from broker.kafka.messages.topics import CreateTopicsCreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tests.kafka.cells.several import CELLS, Several, name_of

NAMES = [name_of(cell, "orders") for cell in range(CELLS)]


async def create(cells: Several, names: list[str], at: int = 0, partitions: int = 2) -> list[int]:
    request = CreateTopicsRequest(
        topics=[
            CreateTopicsCreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names
        ]
    )
    answer = await cells.ask(at, ApiKey.CREATE_TOPICS, 7, request, CreateTopicsResponse)
    assert [each.name for each in answer.topics] == names
    return [each.error_code for each in answer.topics]
