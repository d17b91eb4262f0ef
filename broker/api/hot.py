"""The shortest way for the commonest requests: writes of plain records, reads, claims and acks of whole claims.

No task, no ASGI call: the protocol hands over the whole request, the engine calls back when it has been carried out.
Whatever is out of the ordinary (other fields, something to be waited for first, any error) is not decided here: `take`
says no, nothing was done, and the request goes through `Dispatcher`, which answers everything.
Source: api.md §3, §6; architecture.md (what speed costs here).
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Mapping
from functools import partial
from time import perf_counter
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from broker.api import errors, hot_actions, strict_json
from broker.api.answers import MIN_GZIP_BYTES, Answer, encoded, with_protection
from broker.api.append_body import MayBeDeep
from broker.api.errors import BodyTooSlow
from broker.api.hot_actions import Action, Found
from broker.api.request import request_id
from broker.auth.access import UNCOUNTED, Flight
from broker.wiring import Broker
from storage.errors import ShuttingDown, StorageError

PREFIX: Final = b"/v0/topics/"
#: Longer bodies take the other way, where they are read with back-pressure.
MAX_HOT_BODY_BYTES: Final = 1 << 20


class Sent(enum.Enum):
    """What became of an answer: it went out; there was one already; its client has gone."""

    OUT = enum.auto()
    LATE = enum.auto()
    GONE = enum.auto()


class Caller(Protocol):
    """Who made a request, and waits for one answer."""

    def respond(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes, *, grants: bool) -> Sent:
        """Send the whole answer. Never raises. `grants`: only to a client that is surely there."""
        ...

    def hand_over(self) -> None:
        """Let the request go the other way after all, as if nothing had been done."""
        ...


class Target(NamedTuple):
    """What a request asks for, by its head."""

    action: Action
    topic: str
    query: bytes


class HotRequests:
    """Takes requests, or leaves them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._max_body_bytes = min(MAX_HOT_BODY_BYTES, broker.settings.max_body_bytes)
        self._sending: set[asyncio.Task[None]] = set()

    def target(self, method: bytes, path: bytes, query: bytes, headers: Mapping[bytes, bytes]) -> Target | None:
        """What is asked for, if it is worth collecting the body of this request for `take`.

        What is refused without a look at the body is left to those who refuse it before the body has come.
        """
        length = headers.get(b"content-length", b"")
        if (
            method != b"POST"
            or not path.startswith(PREFIX)
            or b"%" in path
            or headers.get(b"content-type") != b"application/json"
            or b"content-encoding" in headers
            or b"origin" in headers
            or b"sec-fetch-site" in headers
            or not self._broker.sites.answers_to(headers.get(b"host"))
            or not length.isdigit()
            or int(length) > self._max_body_bytes
            or not self._open()
        ):
            return None
        topic, slash, name = path[len(PREFIX) :].partition(b"/")
        action = hot_actions.BY_NAME.get(name) if name or not slash else None
        return None if action is None or query not in action.queries else Target(action, topic.decode(), query)

    def has_room_for(self, body: bytes) -> bool:
        """Whether a body may be so long."""
        return len(body) <= self._max_body_bytes

    def enter(self, target: Target, headers: Mapping[bytes, bytes]) -> Flight | None:
        """A request that may be taken begins. None: it is left to those who refuse it, and say why."""
        gate = self._broker.gate
        if gate is None:
            return UNCOUNTED
        caller = gate.of_bearer(headers)
        if caller is None:
            return None
        rule = target.action.rule
        if not caller.grant.allows(rule.scopes, target.topic):
            return None
        return UNCOUNTED if rule.settles else caller.try_enter()

    def take(self, target: Target, headers: Mapping[bytes, bytes], body: bytes, started: float, caller: Caller) -> bool:
        """True: it is being carried out, and the caller will be answered. False: nothing was done."""
        action = target.action
        if not self._open() or (action.adds and self._broker.pressure.refusing):
            return False
        if action.reads and self._broker.memory.is_busy:
            return False  # reads take turns with large answers, the other way
        told = partial(self._answer, target, headers, started, caller)
        try:
            strict_json.check_utf8(body)
            return action.take(self._broker.engine, target.topic, headers, body, told, caller.hand_over)
        except (StorageError, MayBeDeep, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False  # refused the other way, with all that belongs to it
        except Exception as error:  # how far it has come is unknown: a second try could do it twice
            told(error)
            return True

    def give_up(self, target: Target, headers: Mapping[bytes, bytes], started: float, caller: Caller) -> None:
        """The end of a shutdown's grace. What the request did is unknown, and that is what it is told."""
        self._answer(target, headers, started, caller, ShuttingDown(outcome="unknown"))

    def too_slow(self, target: Target, headers: Mapping[bytes, bytes], started: float, caller: Caller) -> None:
        """The rest of its body does not come."""
        self._answer(target, headers, started, caller, BodyTooSlow())

    def client_gone(self, target: Target) -> None:
        """Count a request whose client left in the middle of its body."""
        self._broker.http_metrics.client_gone(target.action.template)

    def _open(self) -> bool:
        return self._broker.serving and not self._broker.stopping

    def _answer(
        self,
        target: Target,
        headers: Mapping[bytes, bytes],
        started: float,
        caller: Caller,
        outcome: Any,
    ) -> None:
        """Never raises: called by the engine, to whom the answer's trouble is none."""
        action = target.action
        identity = request_id(headers.get(b"x-request-id"))
        if isinstance(outcome, Exception):
            self._broker.http_metrics.refused(outcome)
        try:
            answer = _rendered(target, outcome, started, identity)
        except Exception as error:
            answer = errors.answer(error, request_id=identity.decode())
            if action.undo is not None and not isinstance(outcome, Exception):
                action.undo(outcome)
        if self._broker.tracing is not None:
            seen = outcome.result if isinstance(outcome, Found) else outcome
            self._broker.tracing.hot(action.operation, action.template, answer.status, started, headers, seen)
        large = len(answer.body) >= MIN_GZIP_BYTES
        if large and b"accept-encoding" in headers:
            sending = asyncio.ensure_future(self._send_large(target, answer, identity, headers, started, caller))
            self._sending.add(sending)  # the loop itself would let it be collected
            sending.add_done_callback(self._sending.discard)
            return
        out = [(b"x-request-id", identity), *with_protection(answer.headers)]
        if large:
            out.append((b"vary", b"accept-encoding"))
        out += (b"content-type", answer.content_type), (b"content-length", b"%d" % len(answer.body))
        sent = caller.respond(answer.status, out, answer.body, grants=answer.withdraw is not None)
        self._sent(action, answer, sent, started)

    async def _send_large(
        self,
        target: Target,
        answer: Answer,
        identity: bytes,
        headers: Mapping[bytes, bytes],
        started: float,
        caller: Caller,
    ) -> None:
        """What may be compressed: on a thread, where it is large. The caller is answered in any case."""
        accept_encoding = headers.get(b"accept-encoding")
        try:
            out, body = await encoded(answer, request_id=identity, accept_encoding=accept_encoding)
        except Exception as error:
            if answer.withdraw is not None:
                answer.withdraw()
            self._answer(target, headers, started, caller, error)
            return
        sent = caller.respond(answer.status, out, body, grants=answer.withdraw is not None)
        self._sent(target.action, answer, sent, started)

    def _sent(self, action: Action, answer: Answer, sent: Sent, started: float) -> None:
        if answer.withdraw is not None and sent is not Sent.OUT:
            answer.withdraw()  # nobody will ever hear of it
            if sent is Sent.GONE:
                self._broker.http_metrics.client_gone(action.template)
        elif sent is not Sent.LATE:
            self._broker.http_metrics.observe(action.template, "POST", answer.status, perf_counter() - started)


def _rendered(target: Target, outcome: Any, started: float, identity: bytes) -> Answer:
    if isinstance(outcome, Exception):
        return errors.answer(outcome, request_id=identity.decode())
    return target.action.render(outcome, target.query, started)
