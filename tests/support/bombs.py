"""Small inputs that make a careless decompressor do much work or use much memory, one of each kind. None is stored.

None is larger than 4 MiB. Decompressed, each is more than 64 MiB, or many pieces, or invalid.
"""

from __future__ import annotations

import gzip
import zlib
from functools import cache
from typing import Any

import cramjam

from broker.content.inflate import MAX_MEMBERS
from broker.kafka.records.compression import MAX_BATCH_BYTES, MAX_SNAPPY_BLOCKS, Codec

_cramjam: Any = cramjam
_OVER = MAX_BATCH_BYTES + 1
_XERIAL = b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"
_EMPTY = gzip.compress(b"")


def _block(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


@cache
def gzips() -> dict[str, bytes]:
    """Bodies that claim to be gzip."""
    zeros = gzip.compress(bytes(_OVER))
    return {
        "ratio": zeros,
        "empty members": _EMPTY * (4 * MAX_MEMBERS),
        "many members": gzip.compress(b" " * 80) * (2 * MAX_MEMBERS),
        "members that are large together": gzip.compress(bytes(1 << 20)) * 70,
        "nested": gzip.compress(zeros),
        "deflate": zlib.compress(bytes(_OVER)),
        "cut off": zeros[: len(zeros) // 2],
    }


@cache
def batches() -> dict[str, tuple[Codec, bytes]]:
    """Compressed records of batches."""
    zeros = bytes(_OVER)
    snappy = bytes(_cramjam.snappy.compress_raw(zeros))
    lz4, zstd = bytes(_cramjam.lz4.compress(zeros)), bytes(_cramjam.zstd.compress(zeros))
    return {
        **{f"gzip, {name}": (Codec.GZIP, data) for name, data in gzips().items()},
        "snappy, ratio": (Codec.SNAPPY, snappy),
        "snappy, declared only": (Codec.SNAPPY, b"\x80\x80\x80\x20" + b"\0"),
        "snappy, declared beyond all": (Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"\0" * 20),
        "xerial, ratio": (Codec.SNAPPY, _XERIAL + _block(snappy)),
        "xerial, blocks that are large together": (
            Codec.SNAPPY, _XERIAL + _block(bytes(_cramjam.snappy.compress_raw(bytes(1 << 20)))) * 70
        ),
        "xerial, empty blocks": (Codec.SNAPPY, _XERIAL + _block(b"\0") * (2 * MAX_SNAPPY_BLOCKS)),
        "xerial, blocks of nothing": (Codec.SNAPPY, _XERIAL + _block(b"") * (2 * MAX_SNAPPY_BLOCKS)),
        "xerial, a block that declares all": (Codec.SNAPPY, _XERIAL + _block(b"\x80\x80\x80\x20\0") * 1000),
        "xerial, longer than it is": (Codec.SNAPPY, _XERIAL + b"\x7f\xff\xff\xff" + b"\0" * 10),
        "lz4, ratio": (Codec.LZ4, lz4),
        "lz4, empty frames": (Codec.LZ4, bytes(_cramjam.lz4.compress(b"")) * 100_000),
        "lz4, nested": (Codec.LZ4, bytes(_cramjam.lz4.compress(lz4))),
        "zstd, ratio": (Codec.ZSTD, zstd),
        "zstd, empty frames": (Codec.ZSTD, bytes(_cramjam.zstd.compress(b"")) * 200_000),
        "zstd, nested": (Codec.ZSTD, bytes(_cramjam.zstd.compress(zstd))),
        "zstd, declares a large window": (Codec.ZSTD, b"\x28\xb5\x2f\xfd\x00\xa0" + bytes(20)),
        "zstd, declares a large content": (Codec.ZSTD, b"\x28\xb5\x2f\xfd\xe0" + b"\xff" * 7 + b"\x0f" + bytes(20)),
    }  # fmt: skip
