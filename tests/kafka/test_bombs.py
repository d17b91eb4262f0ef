"""Batches that are small on the wire and large once uncompressed are refused in bounded memory, while others are
served."""

from __future__ import annotations

import asyncio
import threading
import tracemalloc
from typing import Any

import httpx
import pytest

from broker.api.app import build_app
from broker.kafka.apis import ApiKey
from broker.kafka.calls import produce as produce_call
from broker.kafka.errors import ErrorCode
from broker.kafka.records import Columns, write_batch
from broker.kafka.records.batch_reader import MAX_HEADERS, read_batch
from broker.kafka.records.compression import MAX_BATCH_BYTES, Codec
from broker.kafka.records.errors import BatchError, BatchTooLarge
from broker.kafka.records.header import ATTRIBUTES_AT, HEADER_SIZE, sealed
from kernel.plain import _varint as varint  # pyright: ignore[reportPrivateUsage]
from storage.records.values import ReadQuery
from tests.kafka.asking import a_batch, produce, produce_body
from tests.kafka.server import KafkaServer
from tests.support.bombs import batches

PATIENCE_S = 30
REFUSED = (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE)


def a_bomb(codec: Codec, records: bytes) -> bytes:
    """A batch with a correct header and checksum around these records."""
    batch = bytearray(a_batch(b"1")[:HEADER_SIZE] + records)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[ATTRIBUTES_AT + 1] = codec
    return sealed(batch)


async def test_every_compression_bomb_is_refused_and_the_connection_stays(server: KafkaServer) -> None:
    await server.engine.put_topic("t")
    wire = await server.connect()
    for name, (codec, records) in batches().items():
        (error, _, _), (good, _, _) = await produce(wire, ("t", 0, a_bomb(codec, records)), ("t", 0, a_batch(b"1")))
        assert error in REFUSED, name
        assert good == 0, name
    found = await server.engine.read("t", ReadQuery(limit=1000))
    assert len(found.records) == len(batches())


@pytest.mark.parametrize(
    "name", ["gzip, ratio", "gzip, many members", "snappy, ratio", "xerial, ratio", "lz4, ratio", "zstd, ratio"]
)
async def test_health_is_answered_while_a_bomb_is_checked(
    server: KafkaServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader waits until others have been served. On the loop it would wait for ever."""
    await server.engine.put_topic("t")
    served = threading.Event()
    real: Any = produce_call.read_batch

    def held(batch: bytes, *, max_records: int, max_bytes: int) -> Any:
        if max_bytes == MAX_BATCH_BYTES:
            assert threading.current_thread() is not threading.main_thread()
            assert served.wait(PATIENCE_S)
        return real(batch, max_records=max_records, max_bytes=max_bytes)

    monkeypatch.setattr(produce_call, "read_batch", held)
    bad, good = await server.connect(), await server.connect()
    bomb = asyncio.ensure_future(produce(bad, ("t", 0, a_bomb(*batches()[name]))))
    try:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(build_app(server.broker)), base_url="http://localhost"
        ) as client:
            for _ in range(3):
                assert (await client.get("/v0/health")).status_code == 200
                assert (await produce(good, ("t", 0, a_batch(b"1", codec=Codec.GZIP))))[0][0] == 0
        assert not bomb.done()
    finally:
        served.set()
    assert (await bomb)[0][0] in REFUSED


async def test_large_batches_keep_their_order_among_small_batches(server: KafkaServer) -> None:
    await server.engine.put_topic("t")
    wire = await server.connect()
    sizes = [10, 600_000, 20, 700_000, 30]
    for number, size in enumerate(sizes):
        value = b'"%d%s"' % (number, b"x" * size)
        wire.send(ApiKey.PRODUCE, 9, produce_body(9, ("t", 0, a_batch(value, codec=Codec.GZIP))))
    for _ in sizes:
        await wire.answer()
    found = await server.engine.read("t", ReadQuery(limit=10, max_bytes=8 << 20))
    assert [len(record.data) for record in found.records] == [size + 3 for size in sizes]


def test_no_bomb_takes_more_memory_than_the_bound() -> None:
    bound = 1 << 20
    for name, (codec, records) in batches().items():
        batch = a_bomb(codec, records)
        tracemalloc.start()
        try:
            with pytest.raises(BatchError):
                read_batch(batch, max_bytes=bound)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 8 * bound + 4 * len(batch), name


def with_headers(count: int, records: int, filling: int) -> bytes:
    """A batch with many headers, all of them on the last record; the other records fill the batch."""
    headers = [[("", None)] if number == records - 1 else [] for number in range(records)]
    columns = Columns(
        None, [bytes(filling)] * records, headers, [1_700_000_000_000 + (n << 40) for n in range(records)]
    )
    batch = write_batch(0, range(records), columns, 0)
    last = b"\0" + varint((records - 1) << 40) + varint(records - 1) + varint(-1) + varint(filling) + bytes(filling)
    old, new = last + varint(1) + b"\0\1", last + varint(count) + b"\0\1" * count
    assert batch.endswith(varint(len(old)) + old)
    changed = bytearray(batch[: -len(varint(len(old)) + old)] + varint(len(new)) + new)
    changed[8:12] = (len(changed) - 12).to_bytes(4, "big")
    return sealed(changed)


def test_headers_are_counted_before_objects_are_made() -> None:
    assert len((read_batch(with_headers(MAX_HEADERS, 3, 500)).headers or [])[-1]) == MAX_HEADERS
    batch = with_headers(MAX_HEADERS + 1, 3, 500)
    tracemalloc.start()
    try:
        with pytest.raises(BatchTooLarge, match="headers"):
            read_batch(batch)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(batch)


def test_a_large_batch_with_few_headers_is_read() -> None:
    assert len(read_batch(with_headers(7, 5000, 1000)).values) == 5000
