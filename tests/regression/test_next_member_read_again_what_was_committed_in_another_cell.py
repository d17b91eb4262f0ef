"""REST Proxy in a set of cells: a partition went to the next member of a group at an offset that the group had moved on
from, if the topic was in another cell than the group."""

from __future__ import annotations

from pathlib import Path

from broker.cells import home_cell
from tests.http.proxy.calls import produce, send, subscribed, values
from tests.support.cells_in_process import cells, client_of


async def test_the_next_member_goes_on_behind_what_was_committed(tmp_path: Path) -> None:
    async with cells(tmp_path) as made, client_of(made) as client:
        topic = made.topic((home_cell("g", 3) + 1) % 3)
        await produce(client, topic, 1, 2)
        first = await subscribed(client, topic, name="a")
        second = await subscribed(client, topic, name="b")
        assert await values(client, first, count=1) == [1]
        await send(client, f"{first}/offsets")
        await client.delete(f"{first}/subscription")
        assert await values(client, second) == [2]
