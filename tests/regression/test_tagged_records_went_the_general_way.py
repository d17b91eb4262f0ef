"""An HTTP write of tagged records was parsed and encoded record by record, and so were the copies that filtered routers
make. 20 routers of one source copied 20,000 records a second, and plain writes reached 70,000."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kernel
from broker.api.routes import append
from storage import Durability, Engine, TopicConfig
from storage.routers import copies
from storage.routers.copies import Copies, FrameCopies
from storage.state.routers.router import Definition
from tests.unit.storage.machine import Machine, record
from tests.unit.storage.queues.jobs import turns

TAGGED = b'{"records":[%b]}' % b",".join(
    [b'{"tag":"t%d","meta":{"n":%d},"data":%d}' % (number % 3, number, number) for number in range(30)]
)


async def taken(engine: Engine, topic: str, body: bytes) -> Any:
    _, records = append.decode(body)
    told: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    assert engine.try_append(topic, records, told.set_result)
    return await told


async def test_tagged_records_of_a_write_are_encoded_in_a_single_call(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await machine.start()
    await engine.put_topic("t", TopicConfig(durability=Durability.FSYNC))
    calls = _counting(monkeypatch)
    assert (await taken(engine, "t", TAGGED)).last_seq == 30
    found = await engine.read_one("t", 5)
    assert (found.tag, found.meta, found.value) == (b"t1", {"n": 4}, 4)
    assert calls == [30]


async def test_router_copies_of_tagged_records_are_made_from_frames(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await machine.start()
    for name in ("s", "d0", "d1"):
        await engine.put_topic(name, TopicConfig(durability=Durability.FSYNC))
    for number in range(2):
        definition = Definition(source="s", dest=f"d{number}", filter=["tag", "Eq", f"t{number}"])
        await engine.routers.put(f"r{number}", definition)
    monkeypatch.setattr(copies, "_one_by_one", _not_one_by_one)
    made: list[type[Copies]] = []
    monkeypatch.setattr(FrameCopies, "encode", _noting(made, FrameCopies.encode))
    await taken(engine, "s", TAGGED)
    for _ in range(50):
        await turns()
    assert made == [FrameCopies, FrameCopies]
    for number in range(2):
        assert engine.state(f"d{number}").count == 10
        found = await engine.read_one(f"d{number}", 2)
        assert (found.tag, found.meta, found.value) == (b"t%d" % number, {"n": 3 + number}, 3 + number)


async def test_a_few_records_are_encoded_individually(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", [record(1, tag="a"), record(2, node="n"), record(3, meta={"a": 1})])
    assert (await engine.read_one("t", 3)).meta == {"a": 1}


def _counting(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records each call of the encoder gets."""
    calls: list[int] = []
    encode = kernel.encode_appends

    def counted(datas: Any, *given: Any, **more: Any) -> Any:
        calls.append(len(datas))
        return encode(datas, *given, **more)

    monkeypatch.setattr(kernel, "encode_appends", counted)
    return calls


def _not_one_by_one(*_: Any, **__: Any) -> Any:
    raise AssertionError("record by record")


def _noting(made: list[type[Copies]], encode: Any) -> Any:
    def noted(self: Copies, head: Any) -> Any:
        made.append(type(self))
        return encode(self, head)

    return noted
