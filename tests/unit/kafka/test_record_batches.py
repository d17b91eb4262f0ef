"""Record batches: those of other clients are read, other clients read ours, and all else is rejected."""

from __future__ import annotations

import gzip
import random
import tracemalloc
from typing import Any

import cramjam
import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from broker.kafka.records import Columns, write_batch
from broker.kafka.records.batch_reader import read_batch
from broker.kafka.records.compression import Codec, uncompress
from broker.kafka.records.errors import (
    BatchError,
    BatchTooLarge,
    CorruptBatch,
    InvalidBatch,
    InvalidTimestamp,
    UnsupportedCodec,
    UnsupportedMagic,
)
from broker.kafka.records.header import (
    ATTRIBUTES_AT,
    CONTROL,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    empty_batch,
    read_header,
    sealed,
)

_cramjam: Any = cramjam
SOME = [(b"k", b"v", [("a", b"1"), ("b", None)], 1000), (None, b"", [], 1002), (b"", None, [], 999)]

a_record = st.tuples(
    st.none() | st.binary(max_size=40),
    st.none() | st.binary(max_size=300),
    st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=20)), max_size=3),
    st.integers(0, 1 << 42),
)


def produced(records: list[Any], codec: int = 0, **more: int) -> bytes:
    """A batch as a client builds it."""
    fields = {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1, "is_transactional": 0, **more}
    builder: Any = DefaultRecordBatchBuilder(magic=2, compression_type=codec, batch_size=1 << 30, **fields)
    for number, (key, value, headers, stamp) in enumerate(records):
        builder.append(number, stamp, key, value, headers)
    return bytes(builder.build())


def columns_of(records: list[Any]) -> Columns:
    keys, values, headers, stamps = map(list, zip(*records, strict=True))
    return Columns(keys if any(each is not None for each in keys) else None, values, headers, stamps)


def with_attributes(batch: bytes, attributes: int) -> bytes:
    changed = bytearray(batch)
    changed[ATTRIBUTES_AT + 1] = attributes
    return sealed(changed)


def compressed_by_hand(records: bytes, codec: Codec, like: bytes) -> bytes:
    """The batch `like` with other bytes as its records."""
    changed = bytearray(like[:HEADER_SIZE] + records)
    changed[8:12] = (len(changed) - 12).to_bytes(4, "big")
    changed[ATTRIBUTES_AT + 1] = codec
    return sealed(changed)


@given(records=st.lists(a_record, min_size=1, max_size=20), codec=st.sampled_from(Codec))
def test_batches_of_clients_are_read(records: list[Any], codec: Codec) -> None:
    found = read_batch(produced(records, codec))
    headers = found.headers or [()] * len(records)
    columns = zip(found.keys, found.values, map(list, headers), found.stamps, strict=True)
    assert [*columns] == records


ALIKE_TIMES = (lambda number: 0, lambda number: number, lambda number: -number, lambda number: number * 977)


@pytest.mark.parametrize("count", [1, 2, 17, 63, 64, 65, 100, 8192, 8193, 9000])
@pytest.mark.parametrize("key", [None, b"", b"key", b"k" * 70])
@pytest.mark.parametrize("size", [0, 1, 63, 64, 100])
def test_uniform_records_are_read_by_columns(count: int, key: bytes | None, size: int) -> None:
    for time in ALIKE_TIMES[: None if count < 101 else 2]:
        values = [(b"%0*d" % (size or 1, number))[:size] for number in range(count)]
        records = [(key, value, [], 1_700_000_000_000 + time(number)) for number, value in enumerate(values)]
        found = read_batch(produced(records))
        assert [*found.keys] == [key] * count
        assert [*found.values] == values
        assert [*found.stamps] == [record[3] for record in records]


@given(
    base=st.lists(st.sampled_from([b"a", b"b", b"xyz"]), min_size=20, max_size=20),
    odd=st.lists(st.tuples(st.integers(0, 19), a_record), max_size=2),
)
def test_a_deviating_record_among_uniform_records_is_read_correctly(base: list[bytes], odd: list[Any]) -> None:
    records: list[Any] = [(None, value[:1], [], 1000 + number) for number, value in enumerate(base)]
    for place, record in odd:
        records[place] = record
    found = read_batch(produced(records))
    headers = found.headers or [()] * len(records)
    assert [*zip(found.keys, found.values, map(list, headers), found.stamps, strict=True)] == records


@given(records=st.lists(a_record, min_size=1, max_size=20), base=st.integers(0, 1 << 60), epoch=st.integers(0, 1 << 30))
def test_written_batches_are_read_by_clients(records: list[Any], base: int, epoch: int) -> None:
    batch = write_batch(base, range(len(records)), columns_of(records), epoch)
    found = [*DefaultRecordBatch(batch)]
    assert [(each.key, each.value, each.headers, each.timestamp) for each in found] == records
    assert [each.offset for each in found] == [*range(base, base + len(records))]
    assert read_header(batch).leader_epoch == epoch


def test_offsets_may_have_gaps() -> None:
    batch = write_batch(100, [0, 5, 70_000], columns_of(SOME), 1)
    assert [each.offset for each in DefaultRecordBatch(batch)] == [100, 105, 70_100]
    assert DefaultRecordBatch(batch).next_offset == 70_101
    assert read_header(batch).max_timestamp == 1002


def test_a_batch_written_by_columns_equals_the_batch_of_another_implementation() -> None:
    records = [(None, b"v" * (number % 300), [], 1_700_000_000_000 + number) for number in range(20_000)]
    ours = write_batch(0, range(len(records)), columns_of(records), -1)
    assert ours == produced(records)


def test_an_empty_batch_covers_its_offsets() -> None:
    header = read_header(empty_batch(10, 19, 3))
    assert (header.base_offset, header.last_offset_delta, header.records_count, header.leader_epoch) == (10, 9, 0, 3)
    assert DefaultRecordBatch(empty_batch(10, 19, 3)).next_offset == 20
    assert [*DefaultRecordBatch(empty_batch(10, 19, 3))] == []


def test_the_producer_is_in_the_header() -> None:
    header = read_batch(produced(SOME, producer_id=5, producer_epoch=2, base_sequence=77)).header
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 2, 77)


@pytest.mark.parametrize("at", [*range(16), *range(HEADER_SIZE - 44, HEADER_SIZE + 10, 3)])
def test_every_changed_byte_is_detected(at: int) -> None:
    batch = bytearray(produced(SOME))
    batch[at] ^= 0x40
    if at < 8 or 12 <= at < 16:  # the broker sets these, so the checksum leaves them out
        read_batch(bytes(batch))
        return
    with pytest.raises(BatchError):
        read_batch(bytes(batch))


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_sets_are_refused_by_name(magic: int) -> None:
    batch = bytearray(produced(SOME))
    batch[16] = magic
    with pytest.raises(UnsupportedMagic):
        read_batch(bytes(batch))


@pytest.mark.parametrize(
    ("attributes", "error"),
    [
        (TRANSACTIONAL, InvalidBatch),
        (CONTROL, InvalidBatch),
        (LOG_APPEND_TIME, InvalidTimestamp),
        (5, UnsupportedCodec),
        (7, UnsupportedCodec),
    ],
)
def test_invalid_attributes_of_producers_are_refused(attributes: int, error: type[BatchError]) -> None:
    with pytest.raises(error):
        read_batch(with_attributes(produced(SOME), attributes))


def test_two_concatenated_batches_are_corrupt() -> None:
    with pytest.raises(CorruptBatch):
        read_batch(produced(SOME) * 2)


def test_an_impossible_count_is_refused_without_an_allocation() -> None:
    batch = bytearray(produced(SOME))
    batch[57:61] = (1 << 30).to_bytes(4, "big")
    batch[23:27] = ((1 << 30) - 1).to_bytes(4, "big")
    with pytest.raises(CorruptBatch, match="only"):
        read_batch(sealed(batch))


def test_more_records_than_are_taken_are_refused() -> None:
    with pytest.raises(BatchTooLarge):
        read_batch(produced(SOME), max_records=2)


# A long run of zeros, in the form in which each codec makes it small.
ZEROS = bytes(32 << 20)
BOMBS = {
    Codec.GZIP: gzip.compress(ZEROS),
    Codec.SNAPPY: bytes(_cramjam.snappy.compress_raw(ZEROS)),
    Codec.LZ4: bytes(_cramjam.lz4.compress(ZEROS)),
    Codec.ZSTD: bytes(_cramjam.zstd.compress(ZEROS)),
}


@pytest.mark.parametrize("codec", BOMBS)
def test_a_bomb_never_takes_more_than_the_bound(codec: Codec) -> None:
    batch = compressed_by_hand(BOMBS[codec], codec, produced(SOME))
    tracemalloc.start()
    try:
        with pytest.raises(BatchTooLarge):
            read_batch(batch, max_bytes=1 << 20)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < (8 << 20) + 4 * len(batch)


@pytest.mark.parametrize("codec", BOMBS)
def test_content_up_to_the_limit_is_uncompressed(codec: Codec) -> None:
    assert uncompress(codec, BOMBS[codec], len(ZEROS)) == ZEROS
    with pytest.raises(BatchTooLarge):
        uncompress(codec, BOMBS[codec], len(ZEROS) - 1)


@pytest.mark.parametrize("codec", BOMBS)
def test_truncated_batch_is_corrupt(codec: Codec) -> None:
    with pytest.raises(CorruptBatch):
        uncompress(codec, BOMBS[codec][: len(BOMBS[codec]) // 2], len(ZEROS))


def test_a_zstd_frame_with_a_large_window_is_refused() -> None:
    frame = b"\x28\xb5\x2f\xfd\x00" + bytes([0xA0]) + bytes(20)  # 2**30 bytes
    with pytest.raises(BatchTooLarge):
        uncompress(Codec.ZSTD, frame, 1 << 20)


def test_snappy_frames_of_the_java_client_are_read() -> None:
    blocks = [bytes(_cramjam.snappy.compress_raw(part)) for part in (b"one" * 100, b"two" * 50)]
    framed = b"\x82SNAPPY\0\0\0\0\1\0\0\0\1" + b"".join(len(each).to_bytes(4, "big") + each for each in blocks)
    assert uncompress(Codec.SNAPPY, framed, 1000) == b"one" * 100 + b"two" * 50
    with pytest.raises(BatchTooLarge):
        uncompress(Codec.SNAPPY, framed, 449)


@pytest.mark.parametrize("codec", Codec)
def test_mutated_records_never_do_more_than_be_refused(codec: Codec) -> None:
    """With a correct checksum, so that the bytes reach the decoders."""
    chance = random.Random(20_261 + codec)
    with_headers = produced([(b"key", b"v" * 50, [("h", b"x")], 5)] * 20, codec)
    without = produced([(b"key", b"v" * 50, [], 5)] * 100, codec)
    for turn in range(800):
        whole = without if turn % 2 else with_headers
        batch = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            batch[chance.randrange(ATTRIBUTES_AT, len(batch))] = chance.randrange(256)
        if chance.random() < 0.3:
            del batch[chance.randrange(HEADER_SIZE, len(batch)) :]
            batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
        try:
            found = read_batch(sealed(batch), max_bytes=1 << 20)
        except BatchError:
            continue
        assert len(found.keys) == len(found.values) == len(found.stamps) == found.header.records_count


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(BatchError):
        read_batch(data)
