"""The header of a request and of its answer. Pure.

    request   int16 kind · int16 version · int32 correlation id · string client id (v1) · tagged fields (v2)
    answer    int32 length · int32 correlation id (v0) · tagged fields (v1)

Flexible versions of a kind have v2 and v1. The answer to ApiVersions has v0 always: its client does not know yet what
is spoken here.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final, NamedTuple

from broker.kafka.apis import APIS, ApiKey
from broker.kafka.call import Body
from broker.kafka.codec.wire import Buffer, Malformed, Reader

_ANSWER: Final = Struct(">ii")
_FLEXIBLE_ANSWER: Final = Struct(">iix")


class Header(NamedTuple):
    """Of a request; `body_offset`: where in the frame its body begins."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None = None
    body_offset: int = 0

    @property
    def known(self) -> bool:
        """Whether this kind and version are served."""
        api = APIS.get(self.api_key)
        return api is not None and api.first <= self.version <= api.last


def parse(frame: Buffer) -> Header:
    """Raises Malformed. Of a kind or version that is not known only what all have in common."""
    reader = Reader(frame)
    header = Header(reader.int16(), reader.int16(), reader.int32())
    if not header.known:
        return header
    client_id = reader.string()
    if header.version >= APIS[header.api_key].flexible_since:
        reader.skip_tagged_fields()
    return header._replace(client_id=client_id, body_offset=reader.position)


def framed(header: Header, body: Body) -> list[Buffer]:
    """The pieces of a whole answer."""
    pieces: list[Any] = [body] if isinstance(body, (bytes, bytearray, memoryview)) else [*body]
    api = APIS.get(header.api_key)
    flexible = api is not None and header.version >= api.flexible_since and api.key is not ApiKey.API_VERSIONS
    form = _FLEXIBLE_ANSWER if flexible else _ANSWER
    length = form.size - 4 + sum(map(len, pieces))
    if length >= 1 << 31:
        raise Malformed(f"an answer of {length} bytes")
    return [form.pack(length, header.correlation_id), *pieces]
