"""Takes blocks of pieces of one width apart, and puts columns of numbers together: with next to no Python a piece."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import chain
from struct import Struct

#: Larger blocks are cut by as many pieces a time, so that what is kept for cutting stays small.
_CUT_AT_ONCE = 256


def cut(block: bytes | bytearray, width: int, layout: str = "") -> Iterable[bytes]:
    """The pieces of `width` bytes that `block` consists of; of each only what `layout` takes (struct's format)."""
    layout = layout or f"{width}s"
    count = len(block) // width
    if count <= _CUT_AT_ONCE:
        return _cutter(layout, count).unpack(block)
    whole = count - count % _CUT_AT_ONCE
    view = memoryview(block)
    pieces = chain.from_iterable(_cutter(layout, _CUT_AT_ONCE).iter_unpack(view[: whole * width]))
    return chain(pieces, _cutter(layout, count - whole).unpack(view[whole * width :]))


@lru_cache(maxsize=1024)
def _cutter(layout: str, count: int) -> Struct:
    """Made once: making one costs more than using it. Kept small by `_CUT_AT_ONCE`: 40 bytes a piece."""
    return Struct(layout * count)


@lru_cache(maxsize=1024)
def u64s(count: int) -> Struct:
    """So many numbers of 64 bits."""
    return Struct(f"<{count}Q")


def column(block: bytes | bytearray, at: int, width: int) -> bytes:
    """The eight bytes from `at` on of each piece of `width` bytes."""
    out = bytearray(len(block) // width * 8)
    for byte in range(8):
        out[byte::8] = block[at + byte :: width]
    return bytes(out)
