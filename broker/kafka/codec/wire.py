"""Primitive types of the Kafka protocol, read from a frame and written to one.

    int8 … int64, uint16   big-endian, two's complement
    boolean                one byte, 0 = false
    string, bytes          int16 or int32 length, then that many bytes; length -1 = null
    compact string, bytes  unsigned varint of length + 1, 0 = null
    array                  int32 count (-1 = null), or compact: unsigned varint of count + 1 (0 = null)
    uuid                   16 bytes
    tagged fields          unsigned varint count, then as many of: varint tag, varint length, that many bytes

Each length is checked against the rest of the frame before memory is allocated, and the elements of all arrays of a
request count against a limit: the memory of a decoded request is in proportion to its bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct, error
from typing import Final, TypeAlias, TypeVar

T = TypeVar("T")
Buffer: TypeAlias = bytes | bytearray | memoryview

#: The most elements in all arrays of one request.
MAX_ELEMENTS: Final = 200_000
_MAX_VARINT_BYTES: Final = 5

_INT8, _INT16, _INT32, _INT64 = Struct(">b"), Struct(">h"), Struct(">i"), Struct(">q")
_UINT16 = Struct(">H")


class Malformed(Exception):
    """The bytes are not a valid message of the protocol."""


class Reader:
    """Reads values from a frame, front to back. Methods raise Malformed if the frame ends too early."""

    __slots__ = ("_buffer", "_elements_left", "position")

    def __init__(self, buffer: Buffer, position: int = 0, *, max_elements: int = MAX_ELEMENTS) -> None:
        self._buffer = memoryview(buffer)
        self._elements_left = max_elements
        self.position = position

    @property
    def remaining(self) -> int:
        return len(self._buffer) - self.position

    def int8(self) -> int:
        return self._number(_INT8, 1)

    def int16(self) -> int:
        return self._number(_INT16, 2)

    def int32(self) -> int:
        return self._number(_INT32, 4)

    def int64(self) -> int:
        return self._number(_INT64, 8)

    def uint16(self) -> int:
        return self._number(_UINT16, 2)

    def boolean(self) -> bool:
        return self.int8() != 0

    def uuid(self) -> bytes:
        return self._taken(16)

    def varint(self) -> int:
        """An unsigned varint of at most 32 bits."""
        value = shift = 0
        for _ in range(_MAX_VARINT_BYTES):
            byte = self._number(_INT8, 1)
            value |= (byte & 0x7F) << shift
            if byte >= 0:
                if value >> 32:
                    break
                return value
            shift += 7
        raise Malformed(f"a varint before byte {self.position} has more than 32 bits")

    def string(self) -> str | None:
        return self._text(self.int16())

    def compact_string(self) -> str | None:
        return self._text(self.varint() - 1)

    def data(self) -> bytes | None:
        return self._bytes(self.int32())

    def compact_data(self) -> bytes | None:
        return self._bytes(self.varint() - 1)

    def array(self, read: Callable[[Reader], T]) -> list[T] | None:
        return self._array(self.int32(), read)

    def compact_array(self, read: Callable[[Reader], T]) -> list[T] | None:
        return self._array(self.varint() - 1, read)

    def skip_tagged_fields(self) -> None:
        """Skip all tagged fields."""
        for _ in range(self.varint()):
            self.varint()
            self._skip(self.varint())

    def _text(self, length: int) -> str | None:
        data = self._bytes(length)
        if data is None:
            return None
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise Malformed(f"the string before byte {self.position} is not UTF-8") from None

    def _bytes(self, length: int) -> bytes | None:
        if length < 0:
            if length == -1:
                return None
            raise Malformed(f"the length before byte {self.position} is {length}")
        return self._taken(length)

    def _array(self, count: int, read: Callable[[Reader], T]) -> list[T] | None:
        if count < 0:
            if count == -1:
                return None
            raise Malformed(f"the element count before byte {self.position} is {count}")
        if count > self.remaining:  # an element has at least one byte
            raise Malformed(f"an array claims {count} elements, but only {self.remaining} bytes are left")
        self._elements_left -= count
        if self._elements_left < 0:
            raise Malformed(f"the request has more than {MAX_ELEMENTS} array elements")
        return [read(self) for _ in range(count)]

    def _number(self, form: Struct, size: int) -> int:
        return self._unpacked(form, size)[0]

    def _unpacked(self, form: Struct, size: int) -> tuple[int, ...]:
        try:
            values = form.unpack_from(self._buffer, self.position)
        except error:
            raise Malformed(f"the message ends within a field, at byte {len(self._buffer)}") from None
        self.position += size
        return values

    def _taken(self, count: int) -> bytes:
        start = self.position
        self._skip(count)
        return bytes(self._buffer[start : self.position])

    def _skip(self, count: int) -> None:
        if count > self.remaining:
            raise Malformed(f"{count} bytes should follow byte {self.position}, but only {self.remaining} do")
        self.position += count


class Writer:
    """Collects the bytes of a message. A value that does not fit its type is the caller's defect: struct.error."""

    __slots__ = ("_parts", "errors")

    def __init__(self) -> None:
        self._parts = bytearray()
        #: Error codes that were written, for the metrics.
        self.errors: list[int] = []

    def done(self) -> bytes:
        return bytes(self._parts)

    def int8(self, value: int) -> None:
        self._parts += _INT8.pack(value)

    def int16(self, value: int) -> None:
        self._parts += _INT16.pack(value)

    def int32(self, value: int) -> None:
        self._parts += _INT32.pack(value)

    def int64(self, value: int) -> None:
        self._parts += _INT64.pack(value)

    def uint16(self, value: int) -> None:
        self._parts += _UINT16.pack(value)

    def boolean(self, value: bool) -> None:
        self._parts.append(1 if value else 0)

    def uuid(self, value: bytes) -> None:
        if len(value) != 16:
            raise ValueError(f"a UUID has 16 bytes, not {len(value)}")
        self._parts += value

    def varint(self, value: int) -> None:
        while value > 0x7F:
            self._parts.append(value & 0x7F | 0x80)
            value >>= 7
        self._parts.append(value)

    def string(self, value: str | None) -> None:
        if value is None:
            self.int16(-1)
        else:
            data = value.encode()
            self.int16(len(data))
            self._parts += data

    def compact_string(self, value: str | None) -> None:
        self.compact_data(None if value is None else value.encode())

    def data(self, value: bytes | None) -> None:
        if value is None:
            self.int32(-1)
        else:
            self.int32(len(value))
            self._parts += value

    def compact_data(self, value: bytes | None) -> None:
        if value is None:
            self._parts.append(0)
        else:
            self.varint(len(value) + 1)
            self._parts += value

    def array(self, values: list[T] | None, write: Callable[[Writer, T], None]) -> None:
        self.int32(-1 if values is None else len(values))
        for value in values or ():
            write(self, value)

    def compact_array(self, values: list[T] | None, write: Callable[[Writer, T], None]) -> None:
        self.varint(0 if values is None else len(values) + 1)
        for value in values or ():
            write(self, value)

    def no_tagged_fields(self) -> None:
        self._parts.append(0)
