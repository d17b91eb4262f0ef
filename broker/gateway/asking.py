"""Sends one request to several cells and collects their complete answers, for operations that the gateway merges."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from broker.api import Request
from broker.cells import PeerUnavailable
from broker.content import Answer
from broker.gateway.forward import Forwarder, changes
from broker.gateway.heads import Head, front, with_body

if TYPE_CHECKING:
    from broker.gateway.gateway import Gateway

OK: Final = 200
_OF_THE_KEY: Final = frozenset({401, 403})
#: How long a cell may take for its part of a list of everything. The next such list waits meanwhile.
LIST_S: Final = 20.0
#: The largest answer from a cell that is merged.
MOST_BYTES: Final = 256 << 20


class Part(NamedTuple):
    """The answer of one cell."""

    cell: int
    head: Head
    body: bytes

    def to_client(self, request: Request) -> Answer:
        """The answer as the client gets it when it is not merged."""
        identity = self.head.header(b"x-request-id")
        if identity:
            request.answered_as(identity)
        return Answer(
            self.body,
            status=self.head.status,
            headers=self.head.shared(),
            content_type=self.head.header(b"content-type", b"application/json"),
        )


class Asking:
    """Sends requests to the cells of one gateway."""

    def __init__(self, gateway: Gateway, forwarder: Forwarder) -> None:
        self._gateway = gateway
        self._forwarder = forwarder
        #: Held while a list of everything is collected and merged: the gateway has the answers for one at a time.
        self.whole_lists = asyncio.Lock()

    @property
    def cells(self) -> int:
        """The number of cells."""
        return len(self._gateway.upstreams)

    async def ask(
        self,
        request: Request,
        cell: int,
        *,
        method: str | None = None,
        target: bytes | None = None,
        body: Any = None,
        headers: Mapping[bytes, bytes] | None = None,
        patience_s: float | None = None,
    ) -> Part:
        """Send the client's request to one cell, with the changes given here, and return the answer. `patience_s`: how
        long the cell may take. Raises PeerUnavailable."""
        given = {**request.headers, **(headers or {})}
        given.pop(b"accept-encoding", None)  # an answer that is merged must not be compressed
        given.pop(b"content-encoding", None)
        given[b"x-request-id"] = request.request_id
        query = request.query_string
        path: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
        target = target or (b"%b?%b" % (path, query) if query else path)
        encoded = b"" if body is None else body if isinstance(body, bytes) else msgspec.json.encode(body)
        if encoded:
            given[b"content-type"] = b"application/json"
        used = (method or request.scope["method"]).replace("HEAD", "GET").encode()
        data = with_body(front(used, target, list(given.items())), encoded)
        exchange = await self._forwarder.begin(cell, data, changes=changes(request.operation))
        try:
            async with asyncio.timeout(patience_s):
                head = await exchange.head()
                return Part(cell, head, await exchange.body(MOST_BYTES))
        except TimeoutError:
            exchange.close()
            raise PeerUnavailable(cell, "unknown" if changes(request.operation) else "none") from None
        except BaseException:
            exchange.close()
            raise

    async def ask_all(self, request: Request, cells: Iterable[int] | None = None, **given: Any) -> list[Part]:
        """The answers of all cells, or of those named, in order. Raises PeerUnavailable if one of them does not
        answer."""
        numbers = range(len(self._gateway.upstreams)) if cells is None else cells
        return await collected(self.ask(request, number, **given) for number in numbers)


async def collected(asked: Iterable[Coroutine[Any, Any, Part]]) -> list[Part]:
    """Run all of them and return their results in order. If one fails, the others are cancelled and its error is
    raised."""
    tasks = [asyncio.ensure_future(each) for each in asked]
    try:
        return [*await asyncio.gather(*tasks)]
    finally:
        for task in tasks:
            task.cancel()


def refused(parts: Iterable[Part]) -> Part | None:
    """The answer that is an error, if there is one. Of several, a refusal of the key, as a single cell checks the key
    before anything exists; else the first."""
    errors = [part for part in parts if part.head.status != OK]
    return min(errors, key=lambda part: part.head.status not in _OF_THE_KEY, default=None)
