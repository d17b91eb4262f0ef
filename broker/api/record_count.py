"""Counts the records of a large body before it is decoded: 64 MiB of tiny records would become a gigabyte, only to be
refused for their number.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from broker.content import LARGE_BYTES, slices
from storage import BatchTooLarge


class _Remaining:
    """How many more records are allowed."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


_left = _Remaining()


class _Counted(msgspec.Struct, gc=False):
    """A record whose fields are all dropped."""

    def __post_init__(self) -> None:
        _left.count -= 1
        if _left.count < 0:
            raise _TooMany


class _Body(msgspec.Struct):
    records: list[_Counted]


class _TooMany(Exception):
    """There are more records than allowed."""


_decoder: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(_Body)


async def check_count(body: bytes, most: int) -> None:
    """Raises BatchTooLarge. Decoding the body finds any other error."""
    if len(body) <= LARGE_BYTES:
        return  # the records of a smaller body are bounded by its size
    async with slices.exclusive():
        if body.count(b"{") > most:
            await slices.yield_to_loop()
            _check_count(body, most)


def _check_count(body: bytes, most: int) -> None:
    _left.count = most
    try:
        _decoder.decode(body)
    except _TooMany:
        raise BatchTooLarge(
            f"One write takes at most {most} records, this has more.", field="records", max=most
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
