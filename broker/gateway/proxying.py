"""Operations of the REST Proxy that name their topic in the body."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from broker.api import Request
from broker.content import Answer
from broker.gateway.asking import Asking

if TYPE_CHECKING:
    from broker.gateway.gateway import Gateway

_MOST_BYTES: Final = 1 << 20


class _Named(msgspec.Struct):
    topic_name: str = ""


_named = msgspec.json.Decoder(_Named)


class Proxying:
    """Creates topics for the REST Proxy."""

    def __init__(self, gateway: Gateway, asking: Asking) -> None:
        self._gateway = gateway
        self._asking = asking

    async def create_topic(self, request: Request) -> Answer:
        """Create a topic in the home cell of its name."""
        body = await request.read_body(max_bytes=_MOST_BYTES)
        try:
            name = _named.decode(body).topic_name
        except (msgspec.DecodeError, UnicodeDecodeError):
            name = ""  # any cell answers with the error
        cell = self._gateway.owners.cell(name)
        return (await self._asking.ask(request, cell, body=body or b"{}")).to_client(request)
