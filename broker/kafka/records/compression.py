"""Uncompresses what producers send, never into more memory than a bound, and compresses what consumers get. Pure.

gzip, snappy (raw, and framed as the Java client does it), lz4 and zstd. What says how large it is is believed only to
refuse it; all else is written into a buffer that grows up to the bound.
"""

from __future__ import annotations

import mmap
import zlib
from typing import Any, Final

import cramjam

from broker.inflate import Damaged, TooLarge, TooManyMembers, gunzip
from broker.kafka.records.codecs import Codec
from broker.kafka.records.errors import BatchTooLarge, CorruptBatch, UnsupportedCodec

_cramjam: Any = cramjam

#: Records of one batch, uncompressed, have so many bytes at most; compressed as well.
MAX_BATCH_BYTES: Final = 64 << 20

#: Frame of the Java client's snappy: magic, version, oldest version that can read it; then blocks with their lengths.
_XERIAL_MAGIC: Final = b"\x82SNAPPY\0"
_XERIAL_VERSIONS: Final = b"\0\0\0\1\0\0\0\1"
_XERIAL_HEADER: Final = 16
_XERIAL_BLOCK_BYTES: Final = 32 << 10
_BLOCK_LENGTH: Final = 4
#: Where each codec has come near to what it can do and is not slow yet, for batches of JSON.
_GZIP_LEVEL: Final = 3
_GZIP_WBITS: Final = 31
_LZ4_LEVEL: Final = 1
_ZSTD_LEVEL: Final = 3
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
#: How much larger than its input the first buffer is, and each further one than that before.
_GROWTH: Final = 4
_LEAST_BYTES: Final = 1 << 16
_LARGE_BYTES: Final = 1 << 20
#: Most blocks in a frame of snappy: the Java client makes them 1 KiB large at least.
MAX_SNAPPY_BLOCKS: Final = MAX_BATCH_BYTES >> 10
#: Snappy makes nothing smaller than this share of it (64 bytes by a copy of three): what says so is not believed.
_MAX_SNAPPY_RATIO: Final = 22


def uncompress(codec: int, data: bytes, max_bytes: int) -> bytes:
    """What was compressed. Raises UnsupportedCodec, CorruptBatch, BatchTooLarge (more than `max_bytes`)."""
    if len(data) > MAX_BATCH_BYTES:
        raise BatchTooLarge(f"Compressed, the records of a batch are more than {MAX_BATCH_BYTES} bytes.")
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
                raise UnsupportedCodec(f"There is no codec {codec}.")
    except _cramjam.DecompressionError as error:
        raise CorruptBatch(f"Records cannot be uncompressed: {error}") from None
    if len(found) > max_bytes:
        raise _too_large(max_bytes)
    return found


def compress(codec: Codec, data: bytes) -> bytes:
    """What `uncompress`, and the client of every language, makes the same bytes of."""
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            return zlib.compress(data, _GZIP_LEVEL, _GZIP_WBITS)
        case Codec.SNAPPY:
            return _framed_snappy(data)
        case Codec.LZ4:
            # Blocks that lean on those before them are refused by Java's client.
            lz4 = _cramjam.lz4.Compressor(level=_LZ4_LEVEL, content_checksum=False, block_linked=False)
            lz4.compress(data)
            return bytes(lz4.finish())
        case Codec.ZSTD:
            return bytes(_cramjam.zstd.compress(data, level=_ZSTD_LEVEL))


def _framed_snappy(data: bytes) -> bytes:
    """As the Java client frames it: bare snappy is not read by all others."""
    parts = [_XERIAL_MAGIC, _XERIAL_VERSIONS]
    for begin in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(_cramjam.snappy.compress_raw(data[begin : begin + _XERIAL_BLOCK_BYTES]))
        parts += len(block).to_bytes(_BLOCK_LENGTH, "big"), block
    return b"".join(parts)


def _too_large(max_bytes: int) -> BatchTooLarge:
    return BatchTooLarge(f"Uncompressed, the records of a batch are more than {max_bytes} bytes.")


def _gzip(data: bytes, max_bytes: int) -> bytes:
    try:
        return gunzip(data, max_bytes)
    except TooLarge:
        raise _too_large(max_bytes) from None
    except TooManyMembers as error:
        # Not as corrupt: clients send such a batch again, as it is.
        raise BatchTooLarge(f"Records cannot be uncompressed: {error}.") from None
    except Damaged as error:
        raise CorruptBatch(f"Records cannot be uncompressed: {error}") from None


def _snappy(data: bytes, max_bytes: int) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return _snappy_block(data, max_bytes)
    parts: list[bytes] = []
    at, size, blocks = _XERIAL_HEADER, 0, 0
    while at < len(data):
        blocks += 1
        if blocks > MAX_SNAPPY_BLOCKS:
            raise BatchTooLarge(f"Records compressed by snappy have at most {MAX_SNAPPY_BLOCKS} blocks.")
        length = int.from_bytes(data[at : at + _BLOCK_LENGTH], "big")
        at += _BLOCK_LENGTH
        if at + length > len(data):
            raise CorruptBatch("Records cannot be uncompressed: they end too early.")
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
        raise CorruptBatch(f"Records cannot be uncompressed: {len(data)} bytes of snappy say that they are {size}.")
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
    """What `into` writes into a buffer of that size. Raises as it does."""
    if size <= _LARGE_BYTES:
        out = bytearray(size)
        return bytes(memoryview(out)[: into(data, out)])
    # Memory of its own, which is not written to before there is something to write, nor while others have to wait.
    with mmap.mmap(-1, size) as pages:
        count: int = into(data, pages)
        return pages[:count]


def _check_window(data: bytes, max_bytes: int) -> None:
    """A frame of zstd says beforehand how much of its output has to be kept: this is not to be allocated unseen."""
    if data[:4] != _ZSTD_MAGIC or len(data) < 6:
        raise CorruptBatch("Records cannot be uncompressed: this is not zstd.")
    if data[4] & 0x20:  # all in one segment: no larger than its content, which is bounded
        return
    exponent, mantissa = data[5] >> 3, data[5] & 7
    window = (8 + mantissa) << (7 + exponent)
    if window > max(max_bytes, 8 << 20):
        raise _too_large(max_bytes)
