"""Which topic a request of the generator goes to."""

from __future__ import annotations

import asyncio

import pytest

from loadtest.generator import Connection, Load, Task
from loadtest.scenario import Scenario


@pytest.mark.parametrize(("connections", "topics", "rounds"), [(3, 7, 7), (4, 4, 1), (4, 2, 1), (2, 8, 4)])
def test_every_topic_is_written_to(connections: int, topics: int, rounds: int) -> None:
    load = Load(Task(scenario=Scenario(connections=connections, topics=topics, batch=1), host="h", port=1))

    async def made() -> list[Connection]:
        return [Connection(load, index) for index in range(connections)]

    written: set[str] = set()
    for connection in asyncio.run(made()):
        for _ in range(rounds):
            path = load.next_request(connection).split(b" ")[1].decode()
            assert path == f"/v0/topics/load-{connection.topic}"  # the ledger's verdict
            written.add(path)
    assert len(written) == topics
