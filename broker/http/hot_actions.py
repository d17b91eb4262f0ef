"""What `hot` can do: which bodies it takes as they are, how they are begun, how the outcome is shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta, Raw

from broker.auth.table import Rule, rule_of
from broker.http import lease_ids, render, render_queues, strict_json
from broker.http.answers import Answer
from storage.engine import Engine
from storage.queues.checks import MAX_JOBS
from storage.queues.claims import Claimed
from storage.queues.values import Settled
from storage.records import Appended, PlainRecords

#: Is told the outcome, or an exception.
Told: TypeAlias = Callable[[Any], None]

_SURELY_FLAT_BYTES: Final = 2 * (strict_json.MAX_NESTING - 8)
#: Larger numbers are refused the other way, or clamped there.
Number = Annotated[int, Meta(ge=0, le=1 << 53)]


class Action(NamedTuple):
    """`take` begins it and returns True, or does nothing and returns False; it may raise what the other way will say.

    `take` is given a way to let the request go the other way later on, instead of telling an outcome.
    `queries`: query strings that are understood. `undo` takes back what nobody could be told of.
    """

    operation: str
    template: str
    queries: frozenset[bytes]
    #: Whether it adds to the pressure: then it is left to the other way when writes are refused.
    adds: bool
    take: Callable[[Engine, str, Mapping[bytes, bytes], bytes, Told, Callable[[], None]], bool]
    render: Callable[[Any, bytes, float], Answer]
    undo: Callable[[Any], None] | None = None

    @property
    def rule(self) -> Rule:
        """What it takes to call it."""
        return _RULES[self.template]


# -- append ----------------------------------------------------------------------------------------------------------


class _Record(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    data: Raw


class _Append(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A write with nothing but data in its records. Anything else does not decode, and goes the other way."""

    records: list[_Record]
    node: str | None = None
    idempotency_key: str | None = None
    create: bool | None = None


_append_decoder = msgspec.json.Decoder(_Append)
#: Whether a query string asks for the seqs.
_SEQS: Final = {b"": True, b"return_seqs=true": True, b"return_seqs=false": False}


def _append(
    engine: Engine, topic: str, headers: Mapping[bytes, bytes], body: bytes, told: Told, hand_over: Callable[[], None]
) -> bool:
    if topic in engine.catalog.spread:
        return False  # which partition it goes to is decided the other way
    write = _append_decoder.decode(body)
    key = write.idempotency_key
    if key is None and b"idempotency-key" in headers:
        key = headers[b"idempotency-key"].decode() or None
    records = PlainRecords([record.data for record in write.records])
    # Only in data can anything nest here, and what is short cannot be deep: mostly there is nothing to check.
    if max(records.sizes(), default=0) > _SURELY_FLAT_BYTES:
        strict_json.check_flat(body)
    if key is None and len(records) == 1:
        return engine.append_soon(topic, records[0], told, hand_over, node=write.node)
    return engine.append_now(topic, records, told, node=write.node, idempotency_key=key)


def _appended(outcome: Appended, query: bytes, started: float) -> Answer:
    return Answer(render.appended(outcome, seqs=_SEQS[query], started=started))


# -- claim -----------------------------------------------------------------------------------------------------------


class _Claim(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    node: str
    max: Number = 1
    lease_ms: Number | None = None
    wait_ms: Number = 0


_claim_decoder = msgspec.json.Decoder(_Claim)


def _claim(
    engine: Engine, topic: str, _: Mapping[bytes, bytes], body: bytes, told: Told, hand_over: Callable[[], None]
) -> bool:
    asked = _claim_decoder.decode(body)

    def claimed(outcome: Claimed | Exception) -> None:
        if asked.wait_ms and isinstance(outcome, Claimed) and not outcome.jobs:
            hand_over()  # they went while they were being read: now it has to wait
        else:
            told(outcome)

    return bool(asked.node) and engine.queues.claim_now(topic, asked.node, asked.max, asked.lease_ms, claimed)


def _claimed(outcome: Claimed, _: bytes, started: float) -> Answer:
    return Answer(render_queues.claimed(outcome, started), withdraw=outcome.undo)


# -- ack -------------------------------------------------------------------------------------------------------------


class _Ack(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    node: str
    seqs: list[Number]
    lease_ids: list[str] | None = None


_ack_decoder = msgspec.json.Decoder(_Ack)


def _ack(engine: Engine, topic: str, _: Mapping[bytes, bytes], body: bytes, told: Told, __: Callable[[], None]) -> bool:
    asked = _ack_decoder.decode(body)
    if not asked.node or not 0 < len(asked.seqs) <= MAX_JOBS:
        return False
    return engine.queues.ack_now(topic, asked.node, asked.seqs, lease_ids.tokens(asked.lease_ids), told)


def _acked(outcome: Settled, _: bytes, started: float) -> Answer:
    return Answer(render_queues.settled(outcome, b"acked", started))


_TOPIC: Final = "/v0/topics/{topic}"
_PLAIN: Final = frozenset({b""})
_RULES: Final = {template: rule_of("POST", template) for template in (_TOPIC, f"{_TOPIC}/claim", f"{_TOPIC}/ack")}
#: By what follows the topic's name in the path.
BY_NAME: Final = {
    b"": Action("append", _TOPIC, frozenset(_SEQS), True, _append, _appended),
    b"claim": Action("claim", f"{_TOPIC}/claim", _PLAIN, False, _claim, _claimed, Claimed.undo),
    b"ack": Action("ack", f"{_TOPIC}/ack", _PLAIN, False, _ack, _acked),
}
