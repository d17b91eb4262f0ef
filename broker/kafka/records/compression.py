"""Decompresses the records that producers send, within a memory limit, and compresses those for consumers. Pure.

Codecs: gzip, snappy (raw, and framed as by the Java client), lz4 and zstd. A size that compressed data states is used
only to refuse it. Otherwise the output buffer grows as needed, up to the limit.
"""

from __future__ import annotations

import mmap
import zlib
from typing import Any, Final

import cramjam

from broker.content import inflate
from broker.kafka.records.errors import BatchTooLarge, CorruptBatch, UnsupportedCodec
from broker.kafka.records.header import Codec

_cramjam: Any = cramjam

#: The most bytes of records in a batch, both compressed and uncompressed.
MAX_BATCH_BYTES: Final = 64 << 20

#: The frame of the Java client's snappy: magic, version, oldest compatible version; then blocks, each after its length.
_XERIAL_MAGIC: Final = b"\x82SNAPPY\0"
_XERIAL_VERSIONS: Final = b"\0\0\0\1\0\0\0\1"
_XERIAL_HEADER: Final = 16
_XERIAL_BLOCK_BYTES: Final = 32 << 10
_BLOCK_LENGTH: Final = 4
#: For batches of JSON, higher levels are much slower and save little.
_GZIP_LEVEL: Final = 3
_GZIP_WBITS: Final = 31
_LZ4_LEVEL: Final = 1
_ZSTD_LEVEL: Final = 3
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
#: The first buffer is this many times as large as the input, and each further buffer as the one before.
_GROWTH: Final = 4
_LEAST_BYTES: Final = 1 << 16
_LARGE_BYTES: Final = 1 << 20
#: The most blocks in a snappy frame: blocks of the Java client have at least 1 KiB.
MAX_SNAPPY_BLOCKS: Final = MAX_BATCH_BYTES >> 10
#: Snappy compresses by this factor at most (64 bytes become a copy of 3 bytes). A higher stated one is corrupt.
_MAX_SNAPPY_RATIO: Final = 22


def uncompress(codec: int, data: bytes, max_bytes: int) -> bytes:
    """Decompress. Raises UnsupportedCodec, CorruptBatch, and BatchTooLarge for more than `max_bytes`."""
    if len(data) > MAX_BATCH_BYTES:
        raise BatchTooLarge(f"The compressed records of a batch exceed {MAX_BATCH_BYTES} bytes.")
    try:
        match codec:
            case Codec.NONE:
                found = data
            case Codec.GZIP:
                found = _gzip(data, max_bytes)
            case Codec.SNAPPY:
                found = _snappy(data, max_bytes)
            case Codec.LZ4:
                found = _growing(_cramjam.lz4.decompress_into, data, max_bytes)
            case Codec.ZSTD:
                _check_window(data, max_bytes)
                found = _growing(_cramjam.zstd.decompress_into, data, max_bytes)
            case _:
                raise UnsupportedCodec(f"Codec {codec} does not exist.")
    except _cramjam.DecompressionError as error:
        raise CorruptBatch(f"Records cannot be decompressed: {error}") from None
    if len(found) > max_bytes:
        raise _too_large(max_bytes)
    return found


def compress(codec: Codec, data: bytes) -> bytes:
    """Compress so that `uncompress` and the clients of all languages can read it."""
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            return zlib.compress(data, _GZIP_LEVEL, _GZIP_WBITS)
        case Codec.SNAPPY:
            return _framed_snappy(data)
        case Codec.LZ4:
            # Java's client refuses blocks that depend on earlier blocks.
            lz4 = _cramjam.lz4.Compressor(level=_LZ4_LEVEL, content_checksum=False, block_linked=False)
            lz4.compress(data)
            return bytes(lz4.finish())
        case Codec.ZSTD:
            return bytes(_cramjam.zstd.compress(data, level=_ZSTD_LEVEL))


def _framed_snappy(data: bytes) -> bytes:
    """Snappy in the Java client's frame: not all clients read raw snappy."""
    parts = [_XERIAL_MAGIC, _XERIAL_VERSIONS]
    for begin in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(_cramjam.snappy.compress_raw(data[begin : begin + _XERIAL_BLOCK_BYTES]))
        parts += len(block).to_bytes(_BLOCK_LENGTH, "big"), block
    return b"".join(parts)


def _too_large(max_bytes: int) -> BatchTooLarge:
    return BatchTooLarge(f"The uncompressed records of a batch exceed {max_bytes} bytes.")


def _gzip(data: bytes, max_bytes: int) -> bytes:
    try:
        return inflate.gunzip(data, max_bytes)
    except inflate.TooLarge:
        raise _too_large(max_bytes) from None
    except inflate.TooManyMembers as error:
        # Not CorruptBatch: clients would send the same batch again.
        raise BatchTooLarge(f"Records cannot be decompressed: {error}.") from None
    except inflate.Damaged as error:
        raise CorruptBatch(f"Records cannot be decompressed: {error}") from None


def _snappy(data: bytes, max_bytes: int) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return _snappy_block(data, max_bytes)
    parts: list[bytes] = []
    at, size, blocks = _XERIAL_HEADER, 0, 0
    while at < len(data):
        blocks += 1
        if blocks > MAX_SNAPPY_BLOCKS:
            raise BatchTooLarge(f"A snappy frame has at most {MAX_SNAPPY_BLOCKS} blocks.")
        length = int.from_bytes(data[at : at + _BLOCK_LENGTH], "big")
        at += _BLOCK_LENGTH
        if at + length > len(data):
            raise CorruptBatch("Records cannot be decompressed: the last block is incomplete.")
        part = _snappy_block(data[at : at + length], max_bytes - size)
        size += len(part)
        parts.append(part)
        at += length
    return b"".join(parts)


def _snappy_block(data: bytes, max_bytes: int) -> bytes:
    size = _cramjam.snappy.decompress_raw_len(data)
    if size > max_bytes:
        raise _too_large(max_bytes)
    if size > _MAX_SNAPPY_RATIO * len(data):
        raise CorruptBatch(f"Records cannot be decompressed: {len(data)} bytes of snappy state a size of {size}.")
    return _written(_cramjam.snappy.decompress_raw_into, data, size)


def _growing(into: Any, data: bytes, max_bytes: int) -> bytes:
    size = max(_LEAST_BYTES, _GROWTH * len(data))
    while True:
        size = min(size, max_bytes)
        try:
            return _written(into, data, size)
        except _cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise
            if size == max_bytes:
                raise _too_large(max_bytes) from None
        size *= _GROWTH


def _written(into: Any, data: bytes, size: int) -> bytes:
    """The output of `into` in a buffer of that size. Raises the errors of `into`."""
    if size <= _LARGE_BYTES:
        out = bytearray(size)
        return bytes(memoryview(out)[: into(data, out)])
    # Mapped memory: its pages are not zeroed on the loop, and pages that stay unused cost nothing.
    with mmap.mmap(-1, size) as pages:
        count: int = into(data, pages)
        return pages[:count]


def _check_window(data: bytes, max_bytes: int) -> None:
    """Check the window that a zstd frame states: the decoder allocates it. Raises CorruptBatch, BatchTooLarge."""
    if data[:4] != _ZSTD_MAGIC or len(data) < 6:
        raise CorruptBatch("Records cannot be decompressed: they are not a zstd frame.")
    if data[4] & 0x20:  # single segment: the window is the content, whose size is limited
        return
    exponent, mantissa = data[5] >> 3, data[5] & 7
    window = (8 + mantissa) << (7 + exponent)
    if window > max(max_bytes, 8 << 20):
        raise _too_large(max_bytes)
