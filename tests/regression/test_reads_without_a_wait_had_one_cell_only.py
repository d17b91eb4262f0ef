"""A consumer of the REST Proxy got the records of the cell that answered first, even if it did not want to wait, and
those of other cells with its next reads only."""

from __future__ import annotations

from pathlib import Path

from tests.http.proxy.calls import produce, subscribed, values
from tests.support.cells_in_process import cells, client_of


async def test_a_read_has_what_all_cells_have(tmp_path: Path) -> None:
    async with cells(tmp_path) as made, client_of(made) as client:
        topic = made.topic(0)
        assert (await client.put(f"/v0/topics/{topic}", json={"partitions": 3})).status_code == 201
        for number in range(3):
            await produce(client, topic, number, partition=number)
        path = await subscribed(client, topic)
        assert sorted(await values(client, path)) == [0, 1, 2]
