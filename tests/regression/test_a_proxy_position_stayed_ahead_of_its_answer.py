"""Records that a REST Proxy consumer read and did not send are read again, also after a restart."""

from __future__ import annotations

from broker.proxy.instances import Instances
from broker.proxy.polling import Limits, Streaming
from tests.unit.storage.machine import Machine, records


async def test_a_position_that_was_taken_back_is_stored() -> None:
    async with Machine() as machine:
        engine = await machine.start()
        await engine.append("t", records(5))
        proxy = Instances(engine, idle_s=300, most=0)
        await proxy.create("g", {"name": "i", "auto.offset.reset": "earliest", "auto.commit.enable": "false"})
        with proxy.using("g", "i") as member:
            await proxy.subscribe(member, ["t"], None, ())
            found = await proxy.read(member, Limits(timeout_ms=0), Streaming())
            assert len(found.records) == 5
            await proxy._write_moved()  # the second has passed
            proxy.take_back(member, found)
        await proxy.stop()
        proxy = Instances(await machine.restart(), idle_s=300, most=0)
        with proxy.using("g", "i") as member:
            assert set(member.instance.positions.values()) == {0}
