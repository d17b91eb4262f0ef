"""From a stream of bytes to frames. Pure.

    0  length   int32, big-endian, of what follows
    4  body     starts with the int16 that says what kind of request it is

A frame is gathered as it comes: nothing is set aside for what is only announced. How long it may be depends on its
kind, since nearly all kinds are short.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.kafka.codec.wire import Malformed

_PREFIX_BYTES: Final = 4
#: With the kind of request, which tells how long the frame may be.
_HEAD_BYTES: Final = 6


class FrameTooLarge(Malformed):
    """A frame is announced to be longer than one of its kind may be."""


class Frames:
    """Of one connection. `limit_of` gives the most bytes that a frame of a kind may have."""

    __slots__ = ("_frame", "_head", "_length", "_limit_of", "received")

    def __init__(self, limit_of: Callable[[int], int]) -> None:
        self._limit_of = limit_of
        self._head = bytearray()
        self._frame: bytearray | None = None
        self._length = 0
        #: Bytes that have come, all together.
        self.received = 0

    @property
    def begun(self) -> bool:
        """Whether part of a frame is there."""
        return bool(self._head) or self._frame is not None

    @property
    def buffered(self) -> int:
        """Bytes of the part that is there."""
        return len(self._head) + (0 if self._frame is None else len(self._frame))

    def feed(self, data: bytes) -> list[bytearray]:
        """The frames that are complete with these bytes, without their length. Raises Malformed."""
        self.received += len(data)
        found: list[bytearray] = []
        left = memoryview(data)
        while left:
            left = left[self._take(left) :]
            if self._frame is not None and len(self._frame) == self._length:
                found.append(self._frame)
                self._frame = None
        return found

    def _take(self, data: memoryview) -> int:
        """Use up the beginning of `data`; how many bytes of it."""
        if self._frame is not None:
            taken = data[: self._length - len(self._frame)]
            self._frame += taken
            return len(taken)
        before = len(self._head)
        self._head += data[: self._wanted() - before]
        taken_bytes = len(self._head) - before
        if len(self._head) == self._wanted():
            self._begin()
        return taken_bytes

    def _wanted(self) -> int:
        """How much of the head there has to be before the frame begins: less only for one of 0 or 1 bytes."""
        if len(self._head) < _PREFIX_BYTES:
            return _PREFIX_BYTES
        return min(_HEAD_BYTES, _PREFIX_BYTES + max(0, self._announced()))

    def _announced(self) -> int:
        return int.from_bytes(self._head[:_PREFIX_BYTES], "big", signed=True)

    def _begin(self) -> None:
        length = self._announced()
        if length < 0:
            raise Malformed(f"a frame of {length} bytes")
        if len(self._head) == _PREFIX_BYTES and length:
            return  # the kind is still to come
        kind = int.from_bytes(self._head[_PREFIX_BYTES:], "big", signed=True)
        limit = self._limit_of(kind)
        if length > limit:
            raise FrameTooLarge(f"a frame of {length} bytes, where {limit} are the most")
        self._length = length
        self._frame = self._head[_PREFIX_BYTES:]
        self._head = bytearray()
