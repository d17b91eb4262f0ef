"""Takes blocks of pieces of one width apart, and puts columns of numbers together: with next to no Python a piece."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain
from struct import Struct
from typing import TypeAlias

Bytes: TypeAlias = bytes | bytearray
#: Larger blocks are cut by as many pieces a time, so that what is kept for cutting stays small.
_SPLIT_AT_ONCE = 256
#: So many numbers are added one by one as quickly as they are compared.
_FEW = 8


def split_block(block: Bytes | memoryview, width: int, layout: str = "") -> Iterable[bytes]:
    """The pieces of `width` bytes that `block` consists of; of each only what `layout` takes (struct's format)."""
    layout = layout or f"{width}s"
    count = len(block) // width
    if count <= _SPLIT_AT_ONCE:
        return _cutter(layout, count).unpack(block)
    whole = count - count % _SPLIT_AT_ONCE
    view = memoryview(block)
    pieces = chain.from_iterable(_cutter(layout, _SPLIT_AT_ONCE).iter_unpack(view[: whole * width]))
    return chain(pieces, _cutter(layout, count - whole).unpack(view[whole * width :]))


@lru_cache(maxsize=1024)
def _cutter(layout: str, count: int) -> Struct:
    """Made once: making one costs more than using it. Kept small by `_SPLIT_AT_ONCE`: 40 bytes a piece."""
    return Struct(layout * count)


@lru_cache(maxsize=1024)
def u64s(count: int) -> Struct:
    """So many numbers of 64 bits."""
    return Struct(f"<{count}Q")


def field(data: Bytes, at: int, width: int, count: int, size: int = 8) -> bytes:
    """The `size` bytes from data[at] on, and those of the next ones, `width` bytes further each: `count` of them."""
    out = bytearray(count * size)
    end = at + (count - 1) * width + 1
    for byte in range(size):
        out[byte::size] = data[at + byte : end + byte : width]
    return bytes(out)


def put(block: bytearray, at: int, width: int, column: bytes, size: int, used: int | None = None) -> None:
    """What `field` takes, put back: numbers of `size` bytes each; of each its first `used` bytes, None: all of them."""
    for byte in range(size if used is None else used):
        block[at + byte :: width] = column[byte::size]


def constant(data: Bytes, at: int, width: int, count: int, value: bytes) -> bool:
    """Whether all of these `count` fields are there, and say `value`."""
    end = at + (count - 1) * width + 1
    for byte in value:
        if data[at:end:width].count(byte) != count:
            return False
        at += 1
        end += 1
    return True


def all_equal(numbers: array[int]) -> bool:
    """Whether all are the same, as sizes mostly are: asked with no Python number for each."""
    return numbers[:1] * len(numbers) == numbers


def total(numbers: array[int]) -> int:
    """Their sum; where all are the same with no Python number for each."""
    count = len(numbers)
    return numbers[0] * count if count > _FEW and all_equal(numbers) else sum(numbers)


def largest(numbers: array[int]) -> int:
    """The largest; where all are the same with no Python number for each. Raises ValueError where there is none."""
    return numbers[0] if len(numbers) > _FEW and all_equal(numbers) else max(numbers)
