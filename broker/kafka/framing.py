"""Splits a stream of bytes into frames, and decodes and encodes the headers of requests and answers. Pure.

    0  length   int32, big-endian, bytes of the body
    4  body     begins with an int16, the kind of the request

The buffer of a frame grows as bytes arrive: no memory is allocated for an announced length. The length limit depends on
the kind of request, because nearly all kinds are short.

    request   int16 kind · int16 version · int32 correlation id · string client id (v1) · tagged fields (v2)
    answer    int32 length · int32 correlation id (v0) · tagged fields (v1)

Flexible versions of a kind have v2 of the request header and v1 of the answer header. The answer to ApiVersions always
has v0: the client does not know yet which versions the broker supports.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct, error
from typing import Any, Final, NamedTuple

from broker.kafka.apis import APIS, ApiKey
from broker.kafka.call import Body
from broker.kafka.codec import Buffer, Malformed, Reader

_PREFIX_BYTES: Final = 4
#: Bytes of the length and of the kind, which decides the length limit.
_HEAD_BYTES: Final = 6
_REQUEST: Final = Struct(">hhi")
_CLIENT_ID_AT: Final = 8
_ANSWER: Final = Struct(">ii")
_FLEXIBLE_ANSWER: Final = Struct(">iix")


class FrameTooLarge(Malformed):
    """A frame is longer than its kind of request may be."""


class Frames:
    """The frames of one connection. `limit_of` returns the length limit of a kind, in bytes."""

    __slots__ = ("_frame", "_head", "_length", "_limit_of", "buffered", "received")

    def __init__(self, limit_of: Callable[[int], int]) -> None:
        self._limit_of = limit_of
        self._head = bytearray()
        self._frame: bytearray | None = None
        self._length = 0
        #: All bytes received so far.
        self.received = 0
        #: Bytes of an incomplete frame.
        self.buffered = 0

    def feed(self, data: bytes) -> list[bytearray]:
        """Add bytes. Returns the frames that are complete now, without their length field. Raises Malformed."""
        size = len(data)
        self.received += size
        if not self.buffered and size >= _HEAD_BYTES and int.from_bytes(data[:_PREFIX_BYTES], "big") == size - 4:
            # Exactly one frame: the usual case.
            limit = self._limit_of(int.from_bytes(data[_PREFIX_BYTES:_HEAD_BYTES], "big", signed=True))
            if size - _PREFIX_BYTES > limit:
                raise FrameTooLarge(f"a frame of {size - _PREFIX_BYTES} bytes exceeds the limit of {limit}")
            return [bytearray(data[_PREFIX_BYTES:])]
        found: list[bytearray] = []
        left = memoryview(data)
        while left:
            left = left[self._take(left) :]
            if self._frame is not None and len(self._frame) == self._length:
                found.append(self._frame)
                self._frame = None
        self.buffered = len(self._head) + (0 if self._frame is None else len(self._frame))
        return found

    def _take(self, data: memoryview) -> int:
        """Consume the start of `data`. Returns the number of consumed bytes."""
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
        """The bytes that are needed before the frame can begin: fewer only for a frame of 0 or 1 bytes."""
        if len(self._head) < _PREFIX_BYTES:
            return _PREFIX_BYTES
        return min(_HEAD_BYTES, _PREFIX_BYTES + max(0, self._announced()))

    def _announced(self) -> int:
        return int.from_bytes(self._head[:_PREFIX_BYTES], "big", signed=True)

    def _begin(self) -> None:
        length = self._announced()
        if length < 0:
            raise Malformed(f"a frame has a length of {length}")
        if len(self._head) == _PREFIX_BYTES and length:
            return  # the kind has not arrived yet
        kind = int.from_bytes(self._head[_PREFIX_BYTES:], "big", signed=True)
        limit = self._limit_of(kind)
        if length > limit:
            raise FrameTooLarge(f"a frame of {length} bytes exceeds the limit of {limit}")
        self._length = length
        self._frame = self._head[_PREFIX_BYTES:]
        self._head = bytearray()


class Header(NamedTuple):
    """The header of a request. `known`: kind and version are served. `body_offset`: the start of the body."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None = None
    body_offset: int = 0
    known: bool = False
    flexible: bool = False


def parse(frame: bytes | bytearray) -> Header:
    """Decode a header. For an unknown kind or version, only the common fields are set. Raises Malformed."""
    try:
        api_key, version, correlation_id = _REQUEST.unpack_from(frame)
    except error:
        raise Malformed(f"the message ends within its header, at byte {len(frame)}") from None
    api = APIS.get(api_key)
    if api is None or not api.first <= version <= api.last:
        return Header(api_key, version, correlation_id)
    begin = _CLIENT_ID_AT + 2
    size = int.from_bytes(frame[_CLIENT_ID_AT:begin], "big", signed=True)
    end = begin + max(0, size)
    if size < -1 or end > len(frame) or begin > len(frame):
        raise Malformed(f"the client id has {size} bytes, but only {len(frame) - begin} are left")
    try:
        client_id = None if size < 0 else frame[begin:end].decode()
    except UnicodeDecodeError:
        raise Malformed("the client id is not UTF-8") from None
    flexible = version >= api.flexible_since
    if flexible:
        if frame[end : end + 1] == b"\0":  # no tagged fields
            end += 1
        else:
            reader = Reader(frame, end)
            reader.skip_tagged_fields()
            end = reader.position
    return Header(api_key, version, correlation_id, client_id, end, True, flexible and api_key != ApiKey.API_VERSIONS)


def framed(header: Header, body: Body) -> list[Buffer]:
    """The pieces of a whole answer: length, header and body."""
    pieces: list[Any] = [body] if isinstance(body, (bytes, bytearray, memoryview)) else [*body]
    form = _FLEXIBLE_ANSWER if header.flexible else _ANSWER
    length = form.size - 4 + sum(map(len, pieces))
    if length >= 1 << 31:
        raise Malformed(f"an answer has {length} bytes")
    return [form.pack(length, header.correlation_id), *pieces]
