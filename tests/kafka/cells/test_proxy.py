"""Instances of the REST Proxy in a set of cells read topics of their own cell, and refuse others instead of reading
nothing."""

from __future__ import annotations

import pytest

from broker.proxy import Unprocessable
from tests.kafka.cells.several import Several, name_of
from tests.kafka.cells.topics import NAMES, create


async def test_an_instance_refuses_topics_of_other_cells(cells: Several) -> None:
    await create(cells, NAMES)
    proxy = cells.servers[0].broker.proxy
    group = name_of(0, "readers")
    await proxy.create(group, {"name": "i"})
    with proxy.using(group, "i") as member:
        for names, pattern in (([NAMES[1]], None), (NAMES, None), ([], "orders.*")):
            with pytest.raises(Unprocessable, match="cell"):
                await proxy.subscribe(member, names, pattern, ())
        with pytest.raises(Unprocessable, match="cell"):
            await proxy.assign(member, [(NAMES[2], 0)])
        await proxy.subscribe(member, [NAMES[0]], None, ())
        assert sorted(proxy.assigned(member)) == [(NAMES[0], 0), (NAMES[0], 1)]
