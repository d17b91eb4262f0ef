"""Raw bytes in the engine: stored byte for byte and counted by their own size, wherever they are."""

from __future__ import annotations

import msgspec
import pytest

from storage import BinaryRecord, Durability, Engine, NewRecord, PlainBinary, ReadQuery, TopicConfig, TopicType
from storage.errors import InvalidRequest
from tests.unit.storage.machine import Machine
from tests.unit.storage.routers.routed import routed, stored, turns

#: Some look like stored JSON, some like nothing.
VALUES = [
    b"",
    b"\x00\xff",
    b'{"data":1,"meta":{}}',
    b',"deliver_at":99}',
    b"{",
    b"x" * 3000,
    b'{"data":2,"meta":3}',
] * 3
TOTAL = sum(map(len, VALUES))


async def values_of(engine: Engine) -> list[bytes]:
    found = await engine.read("t", ReadQuery(limit=100))
    assert all(record.binary for record in found.records)
    return [record.value for record in found.records]


async def check(engine: Engine) -> None:
    assert await values_of(engine) == VALUES
    assert engine.state("t").bytes == TOTAL
    assert engine.state("t").count == len(VALUES)


async def test_bytes_survive_the_process_and_the_way_into_a_segment(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t", TopicConfig(durability=Durability.FSYNC))
    await engine.append("t", PlainBinary(VALUES[:7]))  # pyright: ignore[reportArgumentType]
    await engine.append("t", [BinaryRecord(msgspec.Raw(value)) for value in VALUES[7:14]])
    for value in VALUES[14:]:
        await engine.append("t", value)
    await check(engine)
    engine = await machine.kill()  # from the log alone
    await check(engine)
    engine = await machine.cut_power()
    await check(engine)
    await engine.segment_worker.flush_all()
    await check(engine)
    engine = await machine.restart()  # from segments
    await check(engine)


async def test_a_batch_may_mix_bytes_and_json(machine: Machine) -> None:
    engine = await machine.start()
    batch = [BinaryRecord(msgspec.Raw(b"\x00")), NewRecord(msgspec.Raw(b"1")), BinaryRecord(msgspec.Raw(b"1"), tag="x")]
    await engine.append("t", batch)
    engine = await machine.kill()
    found = (await engine.read("t", ReadQuery())).records
    assert [(record.binary, record.value, record.tag) for record in found] == [
        (True, b"\x00", b""),
        (False, 1, b""),
        (True, b"1", b"x"),
    ]


async def test_a_router_copies_bytes_as_bytes(machine: Machine) -> None:
    engine = await routed(machine)
    await engine.append("a", b'\x00,"meta":\xff')
    await engine.append("a", b"\x01")
    assert [record.value for record in await stored(engine)] == [b'\x00,"meta":\xff', b"\x01"]
    engine = await machine.kill()
    copies = await stored(engine)
    assert [(record.binary, record.value) for record in copies] == [(True, b'\x00,"meta":\xff'), (True, b"\x01")]
    assert engine.state("b").bytes == 10 + 1


async def test_bytes_have_neither_meta_nor_delay(machine: Machine) -> None:
    engine = await machine.start()
    for more in ({"meta": msgspec.Raw(b"1")}, {"delay_ms": 1}, {"deliver_at": 1}):
        with pytest.raises(InvalidRequest) as refused:
            await engine.append("t", [BinaryRecord(msgspec.Raw(b"x"), **more)])
        assert refused.value.detail["field"] == f"records[0].{next(iter(more))}"


async def test_a_job_of_bytes_is_bytes_among_the_dead_letters_and_back(machine: Machine) -> None:
    engine = await machine.start()
    config = TopicConfig(type=TopicType.QUEUE, max_deliveries=1, dead_letter="dead")
    await engine.put_topic("q", config)
    await engine.append("q", b"\x00\xff")
    claim = await engine.queues.claim("q", "w")
    assert claim.jobs[0].record.value == b"\x00\xff"
    await engine.queues.nack("q", "w", [1])
    await turns()
    (dead,) = (await engine.read("dead", ReadQuery())).records
    assert (dead.binary, dead.data, dead.value) == (True, b"\x00\xff", b"\x00\xff")
    assert dead.meta["$dead_letter_from"] == "q"
    assert (await engine.queues.redrive("q")).moved == 1
    job = (await engine.queues.claim("q", "w")).jobs[0].record
    assert (job.binary, job.value, job.meta) == (True, b"\x00\xff", None)
    assert engine.state("q").bytes == 2
