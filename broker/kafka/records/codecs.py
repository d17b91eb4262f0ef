"""How the records of a batch are compressed. Pure."""

from __future__ import annotations

import enum


class Codec(enum.IntEnum):
    """As the attributes of a batch say it."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4
