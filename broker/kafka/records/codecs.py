"""The compression codecs of record batches. Pure."""

from __future__ import annotations

import enum


class Codec(enum.IntEnum):
    """The number of the codec in the attributes of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4
