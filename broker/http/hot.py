"""The shortest way for the commonest request: a write of plain records to a topic that is there.

No task, no ASGI call: the protocol hands over the whole request, the engine calls back when the write has been
committed. Whatever is out of the ordinary (other fields, a write that has to wait, any error) is not decided here:
`take` says no, nothing was done, and the request goes through `Dispatcher`, which answers everything.
Source: api.md §3 (append); architecture.md (what speed costs here).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter
from typing import Final, TypeAlias

import msgspec
from msgspec import Raw

from broker.http import errors, render, strict_json
from broker.http.answers import MIN_GZIP_BYTES, Answer, Message, send_answer
from broker.http.request import request_id
from broker.wiring import Broker
from storage.errors import ShuttingDown, StorageError
from storage.records import Appended, PlainRecords

TEMPLATE: Final = "/v0/topics/{topic}"
PREFIX: Final = b"/v0/topics/"
#: Longer bodies take the other way, where they are read with back-pressure.
MAX_HOT_BODY_BYTES: Final = 1 << 20

_SURELY_FLAT_BYTES: Final = 2 * (strict_json.MAX_NESTING - 8)

#: Sends an answer: status, headers, body. False: there has been one already.
Respond: TypeAlias = Callable[[int, list[tuple[bytes, bytes]], bytes], bool]


class _Record(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    data: Raw


class _Body(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A write with nothing but data in its records. Anything else does not decode, and goes the other way."""

    records: list[_Record]
    node: str | None = None
    idempotency_key: str | None = None
    create: bool | None = None


_decoder = msgspec.json.Decoder(_Body)


class HotWrites:
    """Takes writes, or leaves them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._max_body_bytes = min(MAX_HOT_BODY_BYTES, broker.settings.max_body_bytes)
        self._sending: set[asyncio.Task[None]] = set()

    def may_take(self, method: bytes, path: bytes, headers: Mapping[bytes, bytes]) -> bool:
        """Whether it is worth collecting the body of this request for `take`.

        What is refused without a look at the body is left to those who refuse it before the body has come.
        """
        length = headers.get(b"content-length", b"")
        return (
            method == b"POST"
            and path.startswith(PREFIX)
            and path.find(b"/", len(PREFIX)) < 0
            and b"%" not in path
            and headers.get(b"content-type") == b"application/json"
            and b"content-encoding" not in headers
            and length.isdigit()
            and int(length) <= self._max_body_bytes
            and self._open()
        )

    def take(
        self, path: bytes, query: bytes, headers: Mapping[bytes, bytes], body: bytes, started: float, respond: Respond
    ) -> bool:
        """True: the write is on its way, and `respond` will be called. False: nothing was done."""
        seqs = _SEQS.get(query)
        if seqs is None or not self._open():
            return False
        settled = partial(self._answer, seqs, headers, started, respond)
        try:
            strict_json.check_utf8(body)
            write = _decoder.decode(body)
            records = PlainRecords([record.data for record in write.records])
            # Only in data can anything nest here, and what is short cannot be deep: mostly there is nothing to check.
            if max(map(len, records), default=0) > _SURELY_FLAT_BYTES:
                strict_json.check_flat(body)
            key = write.idempotency_key
            if key is None and b"idempotency-key" in headers:
                key = headers[b"idempotency-key"].decode() or None
            return self._broker.engine.append_now(
                path[len(PREFIX) :].decode(),
                records,
                settled,
                node=write.node,
                idempotency_key=key,
            )
        except (StorageError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False  # refused the other way, with all that belongs to it
        except Exception as error:  # how far the write has come is unknown: a second try could write it twice
            settled(error)
            return True

    def give_up(self, headers: Mapping[bytes, bytes], started: float, respond: Respond) -> None:
        """The end of a shutdown's grace. What the request did is unknown, and that is what it is told."""
        self._answer(False, headers, started, respond, ShuttingDown(outcome="unknown"))

    def client_gone(self) -> None:
        """Count a request whose client left in the middle of its body."""
        self._broker.http_metrics.client_gone(TEMPLATE)

    def _open(self) -> bool:
        return self._broker.serving and not self._broker.stopping

    def _answer(
        self,
        seqs: bool,
        headers: Mapping[bytes, bytes],
        started: float,
        respond: Respond,
        outcome: Appended | Exception,
    ) -> None:
        """Never raises: called by the engine, to whom the answer's trouble is none."""
        identity = request_id(headers.get(b"x-request-id"))
        try:
            answer = _rendered(outcome, seqs, started, identity)
        except Exception as error:
            answer = errors.answer(error, request_id=identity.decode())
        large = len(answer.body) >= MIN_GZIP_BYTES
        if large and b"accept-encoding" in headers:
            sending = asyncio.ensure_future(self._send_large(answer, identity, headers, started, respond))
            self._sending.add(sending)  # the loop itself would let it be collected
            sending.add_done_callback(self._sending.discard)
            return
        out = [(b"x-request-id", identity), *answer.headers]
        if large:
            out.append((b"vary", b"accept-encoding"))
        out += (b"content-type", answer.content_type), (b"content-length", b"%d" % len(answer.body))
        if respond(answer.status, out, answer.body):
            self._count(answer.status, started)

    async def _send_large(
        self, answer: Answer, identity: bytes, headers: Mapping[bytes, bytes], started: float, respond: Respond
    ) -> None:
        """What may be compressed takes the common way out, and is sent when it is whole."""
        messages: list[Message] = []

        async def keep(message: Message) -> None:
            messages.append(message)

        await send_answer(answer, keep, request_id=identity, accept_encoding=headers.get(b"accept-encoding"))
        head, body = messages
        if respond(answer.status, head["headers"], body["body"]):
            self._count(answer.status, started)

    def _count(self, status: int, started: float) -> None:
        self._broker.http_metrics.observe(TEMPLATE, "POST", status, perf_counter() - started)


def _rendered(outcome: Appended | Exception, seqs: bool, started: float, identity: bytes) -> Answer:
    if isinstance(outcome, Appended):
        return Answer(render.appended(outcome, seqs=seqs, started=started))
    return errors.answer(outcome, request_id=identity.decode())


#: Query strings that are understood here, and whether they ask for the seqs.
_SEQS: Final = {b"": True, b"return_seqs=true": True, b"return_seqs=false": False}
