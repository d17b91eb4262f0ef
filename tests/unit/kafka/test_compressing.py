"""Batches compressed for consumers: readable by other implementations, never larger, made once for all requests."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from kafka.record.memory_records import MemoryRecords

from broker.kafka.codec.wire import Buffer
from broker.kafka.packed import Packed
from broker.kafka.records import Codec, Columns, compressed, write_batch
from broker.kafka.records.batch_reader import read_batch
from broker.kafka.records.compression import compress, uncompress
from broker.kafka.records.header import read_header
from broker.scheduling import Heavy

CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
_memory: Any = MemoryRecords
NOISE = random.Random(4).randbytes(1 << 20)


def a_batch(count: int = 500, value: bytes = b'{"item":"tea","n":1}') -> bytes:
    columns = Columns(None, [value] * count, None, [1_700_000_000_000] * count)
    return write_batch(1000, range(count), columns, 3)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", [b"", b"x", bytes(32 << 10), b"tea" * 50_000, NOISE[:40_000], NOISE])
def test_compressed_batch_can_be_decompressed(codec: Codec, data: bytes) -> None:
    assert uncompress(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_other_implementations_read_a_compressed_batch(codec: Codec) -> None:
    batch = a_batch()
    small = bytes(compressed(batch, codec))
    assert len(small) < len(batch) / 5
    header, before = read_header(small), read_header(batch)
    assert header.codec == codec
    assert header._replace(attributes=0, crc=0, batch_length=0) == before._replace(crc=0, batch_length=0)
    assert [*read_batch(small.replace(small[:8], bytes(8), 1)).values] == [b'{"item":"tea","n":1}'] * 500
    assert [each.offset for each in DefaultRecordBatch(small)] == [*range(1000, 1500)]
    found = _memory(small).next_batch()
    assert found.validate_crc()
    assert [each.value for each in found] == [b'{"item":"tea","n":1}'] * 500


def test_blocks_of_lz4_are_independent() -> None:
    """Java's client refuses them otherwise."""
    flags = compress(Codec.LZ4, b"x" * 200_000)[4]
    assert flags >> 6 == 1
    assert flags & 0x20


@pytest.mark.parametrize("codec", CODECS)
def test_an_incompressible_batch_stays_uncompressed(codec: Codec) -> None:
    batch = a_batch(1, NOISE[:2000])
    assert compressed(batch, codec) is batch


def test_without_a_codec_the_batch_is_unchanged() -> None:
    batch = a_batch()
    assert compressed(batch, Codec.NONE) is batch


class _Compressing:
    """Counts its calls, and blocks while it is held."""

    def __init__(self) -> None:
        self.calls = 0
        self.go = threading.Event()
        self.go.set()

    def __call__(self, batch: Buffer, codec: Codec) -> Buffer:
        self.calls += 1
        assert self.go.wait(20)
        return compressed(batch, codec)


@pytest.fixture
def compressing() -> _Compressing:
    return _Compressing()


LARGE = a_batch(5000)


async def test_a_batch_is_compressed_once_for_all(compressing: _Compressing) -> None:
    packed = Packed(Heavy())
    first = await packed.get(1, Codec.ZSTD, LARGE, compressing)
    assert [await packed.get(1, Codec.ZSTD, bytes(bytearray(LARGE)), compressing) for _ in range(3)] == [first] * 3
    assert (compressing.calls, packed.made, packed.found) == (1, 1, 3)


async def test_concurrent_lookups_compress_once(compressing: _Compressing) -> None:
    packed = Packed(Heavy())
    compressing.go.clear()
    asking = [asyncio.ensure_future(packed.get(1, Codec.GZIP, LARGE, compressing)) for _ in range(5)]
    while not compressing.calls:
        await asyncio.sleep(0.001)
    asking[0].cancel()
    compressing.go.set()
    found = await asyncio.gather(*asking[1:])
    assert compressing.calls == 1
    assert len({*map(bytes, found)}) == 1


@pytest.mark.parametrize(
    "other",
    [
        lambda: (2, Codec.GZIP, LARGE),
        lambda: (1, Codec.LZ4, LARGE),
        lambda: (1, Codec.GZIP, LARGE[:-1] + bytes([LARGE[-1] ^ 1])),
    ],
)
async def test_another_log_codec_or_content_is_another_batch(
    compressing: _Compressing, other: Callable[[], tuple[int, Codec, bytes]]
) -> None:
    packed = Packed(Heavy())
    await packed.get(1, Codec.GZIP, LARGE, compressing)
    await packed.get(*other(), compressing)
    assert compressing.calls == 2


async def test_the_cache_stays_within_its_bound(compressing: _Compressing) -> None:
    size = len(compressed(LARGE, Codec.GZIP))
    packed = Packed(Heavy(), max_bytes=3 * size)
    for topic_id in (1, 2, 3, 1, 4):
        await packed.get(topic_id, Codec.GZIP, LARGE, compressing)
    assert packed.bytes == 3 * size
    assert compressing.calls == 4
    await packed.get(1, Codec.GZIP, LARGE, compressing)  # it was requested after 2
    assert compressing.calls == 4
    await packed.get(2, Codec.GZIP, LARGE, compressing)
    assert compressing.calls == 5


async def test_batch_larger_than_the_bound_is_not_cached(compressing: _Compressing) -> None:
    packed = Packed(Heavy(), max_bytes=10)
    assert await packed.get(1, Codec.GZIP, LARGE, compressing) == compressed(LARGE, Codec.GZIP)
    assert packed.bytes == 0


async def test_large_batches_are_compressed_on_a_thread() -> None:
    threads: list[bool] = []

    def seen(batch: Buffer, codec: Codec) -> Buffer:
        threads.append(threading.current_thread() is threading.main_thread())
        return compressed(batch, codec)

    packed = Packed(Heavy())
    await packed.get(1, Codec.GZIP, a_batch(20), seen)
    await packed.get(1, Codec.GZIP, LARGE, seen)
    assert threads == [True, False]
