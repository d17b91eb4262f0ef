"""The shortest way for the commonest request: a write of plain records to a topic that is there.

No task, no ASGI call: the protocol hands over the whole request, the engine calls back when the write has been
committed. Whatever is out of the ordinary (other fields, a write that has to wait, any error) is not decided here:
`take` says no, nothing was done, and the request goes through `Dispatcher`, which answers everything.
Source: api.md §3 (append); architecture.md (what speed costs here).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, Final, TypeAlias

import msgspec
import structlog
from msgspec import Raw

from broker.http import errors, render, strict_json
from broker.http.answers import JSON, MIN_GZIP_BYTES, OK
from broker.http.request import request_id
from broker.wiring import Broker
from storage.errors import StorageError
from storage.records import Appended, PlainRecords

_log = structlog.get_logger("broker.http")

TEMPLATE: Final = "/v0/topics/{topic}"
PREFIX: Final = b"/v0/topics/"
#: Longer bodies take the other way, where they are read with back-pressure.
MAX_HOT_BODY_BYTES: Final = 1 << 20

_SURELY_FLAT_BYTES: Final = 2 * (strict_json.MAX_NESTING - 8)

#: Sends an answer: status, headers, body.
Respond: TypeAlias = Callable[[int, list[tuple[bytes, bytes]], bytes], None]


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

    @staticmethod
    def may_take(method: bytes, path: bytes, headers: Mapping[bytes, bytes]) -> bool:
        """Whether it is worth collecting the body of this request for `take`."""
        length = headers.get(b"content-length", b"")
        return (
            method == b"POST"
            and path.startswith(PREFIX)
            and path.find(b"/", len(PREFIX)) < 0
            and b"%" not in path
            and headers.get(b"content-type") == b"application/json"
            and b"content-encoding" not in headers
            and length.isdigit()
            and int(length) <= MAX_HOT_BODY_BYTES
        )

    def take(
        self, path: bytes, query: bytes, headers: Mapping[bytes, bytes], body: bytes, started: float, respond: Respond
    ) -> bool:
        """True: the write is on its way, and `respond` will be called once. False: nothing was done."""
        broker = self._broker
        seqs = _SEQS.get(query)
        if not broker.serving or broker.stopping or seqs is None or len(body) > broker.settings.max_body_bytes:
            return False
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

            def settled(outcome: Appended | StorageError) -> None:
                self._answer(outcome, seqs, headers, started, respond)

            return broker.engine.append_now(
                path[len(PREFIX) :].decode(),
                records,
                settled,
                node=write.node,
                idempotency_key=key,
            )
        except (StorageError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False  # refused the other way, with all that belongs to it

    def _answer(
        self,
        outcome: Appended | StorageError,
        seqs: bool,
        headers: Mapping[bytes, bytes],
        started: float,
        respond: Respond,
    ) -> None:
        identity = request_id(headers.get(b"x-request-id"))
        try:
            status, content_type, body, more = self._rendered(outcome, seqs, started, identity)
            out = [
                (b"x-request-id", identity),
                *more,
                (b"content-type", content_type),
                (b"content-length", b"%d" % len(body)),
            ]
            respond(status, out, body)
        except Exception:  # called by the engine, to whom the answer's trouble is none
            _log.exception("answer_failed", route=TEMPLATE)
            return
        self._broker.http_metrics.observe(TEMPLATE, "POST", status, perf_counter() - started)

    @staticmethod
    def _rendered(outcome: Appended | StorageError, seqs: bool, started: float, identity: bytes) -> Any:
        if isinstance(outcome, Appended):
            body = render.appended(outcome, seqs=seqs, started=started)
            more = [(b"vary", b"accept-encoding")] if len(body) >= MIN_GZIP_BYTES else []
            return OK, JSON, body, more
        answer = errors.answer(outcome, request_id=identity.decode())
        return answer.status, answer.content_type, answer.body, answer.headers


#: Query strings that are understood here, and whether they ask for the seqs.
_SEQS: Final = {b"": True, b"return_seqs=true": True, b"return_seqs=false": False}
