"""Queues: claiming and completing jobs, administration. Names are checked here, everything else by the engine.

Source: docs/reference/api.md#queues.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING, Final

import msgspec

from broker.scheduling import Slots
from broker.service.predicates import check_topic_name
from broker.service.topics import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE, decode_cursor, encode_cursor
from storage import InvalidRequest, ShuttingDown
from storage.queues import MAX_WAIT_MS
from storage.state.queues import JobState, JobView, Redriven, Settled

if TYPE_CHECKING:
    from storage import Engine
    from storage.queues import Claimed, Worker

PURGEABLE: Final = (JobState.READY, JobState.DELAYED)


class Claim(msgspec.Struct, kw_only=True):
    """The options of a claim. The engine clamps too large values."""

    topic: str
    node: str
    max: int = 1
    lease_ms: int | None = None
    wait_ms: int = 0
    attempt_key: str | None = None


class Work(msgspec.Struct, kw_only=True):
    """The options of a worker that gets jobs pushed."""

    topic: str
    node: str
    max: int = 1
    lease_ms: int | None = None


class Settle(msgspec.Struct, kw_only=True):
    """The jobs of an ack, nack or extend. A lease id of 0 means any lease of the node."""

    topic: str
    node: str
    seqs: list[int]
    lease_ids: Sequence[int] | None = None
    strict: bool = False


def claimable_bytes(engine: Engine, topic: str, max: int) -> tuple[int, int]:
    """The mean bytes of a job, and the bytes of as many as a claim of `max` would get now. Raises InvalidRequest,
    TopicNotFound, NotAQueue.
    """
    check_topic_name(topic)
    return engine.queues.claimable_bytes(topic, max)


def check_claim(engine: Engine, asked: Claim) -> None:
    """Raises InvalidRequest, NotReady, ShuttingDown: the errors of `claim` before it looks up the queue."""
    check_topic_name(asked.topic)
    engine.queues.check_claim(asked.node, asked.max, asked.wait_ms, asked.attempt_key)


async def claim(engine: Engine, asked: Claim, max_bytes: int = 0) -> Claimed:
    """Claim without waiting, about `max_bytes` of jobs (see `Queues.claim`). Raises InvalidRequest, TopicNotFound,
    NotAQueue, Unavailable.
    """
    check_topic_name(asked.topic)
    return await _claim(engine, asked, 0, max_bytes)


async def claim_on(
    engine: Engine, parking: Slots, asked: Claim, empty: Claimed, began: float, max_bytes: int = 0
) -> Claimed:
    """Continue a claim that found nothing, until there is a job or wait_ms since `began` have passed.

    At shutdown it returns `empty` at once. Raises LimitReached (too many wait) and the errors of `claim`.
    """
    left_ms = min(asked.wait_ms, MAX_WAIT_MS) - int((monotonic() - began) * 1000)
    if left_ms <= 0:
        return empty
    with parking.hold():
        try:
            return await _claim(engine, asked, left_ms, max_bytes)
        except ShuttingDown:
            return empty


async def _claim(engine: Engine, asked: Claim, wait_ms: int, max_bytes: int) -> Claimed:
    return await engine.queues.claim(
        asked.topic,
        asked.node,
        max=asked.max,
        lease_ms=asked.lease_ms,
        wait_ms=wait_ms,
        attempt_key=asked.attempt_key,
        max_bytes=max_bytes,
    )


async def ack(engine: Engine, asked: Settle) -> Settled:
    """Ack jobs, which deletes them, as durably as the topic's class defines. Raises LeaseLost if strict."""
    check_topic_name(asked.topic)
    return await engine.queues.ack(asked.topic, asked.node, asked.seqs, lease_ids=asked.lease_ids, strict=asked.strict)


async def nack(engine: Engine, asked: Settle, *, delay_ms: int | None, penalty: bool, reason: str | None) -> Settled:
    """Nack jobs: they can be claimed again after `delay_ms`, or the queue's backoff. Raises LeaseLost if strict."""
    check_topic_name(asked.topic)
    return await engine.queues.nack(
        asked.topic,
        asked.node,
        asked.seqs,
        delay_ms=delay_ms,
        lease_ids=asked.lease_ids,
        penalty=penalty,
        reason=reason,
        strict=asked.strict,
    )


async def extend(engine: Engine, asked: Settle, lease_ms: int) -> Settled:
    """Extend leases: they end `lease_ms` from now. Raises LeaseLost if strict."""
    check_topic_name(asked.topic)
    return await engine.queues.extend(
        asked.topic, asked.node, asked.seqs, lease_ms, lease_ids=asked.lease_ids, strict=asked.strict
    )


def work(engine: Engine, asked: Work) -> Worker:
    """Make a worker, an async context manager that yields jobs one by one. On exit, unfinished jobs are released.

    Raises InvalidRequest, TopicNotFound, NotAQueue. Later errors are raised where jobs are taken from it.
    """
    check_topic_name(asked.topic)
    return engine.queues.work(asked.topic, asked.node, max=asked.max, lease_ms=asked.lease_ms)


async def pause(engine: Engine, topic: str) -> bool:
    """Pause a queue: it delivers no jobs. Durable on return. Returns whether it is paused."""
    check_topic_name(topic)
    return await engine.queues.pause(topic)


async def resume(engine: Engine, topic: str) -> bool:
    """Resume a queue. Durable on return. Returns whether it is paused."""
    check_topic_name(topic)
    return await engine.queues.resume(topic)


async def purge(
    engine: Engine, topic: str, states: Sequence[str], *, max: int | None = None, through_seq: int | None = None
) -> int:
    """Delete the jobs in these states that exist at the call: at most `max`, up to this seq. Returns their number."""
    check_topic_name(topic)
    await engine.let_expire((topic,))
    wanted = tuple(JobState(state) for state in states)
    return await engine.queues.purge(topic, states=wanted, max=max, through_seq=through_seq)


def sources(topic: str, source: str | None) -> list[str]:
    """The topics that a redrive names in addition to the queue. Raises InvalidRequest."""
    check_topic_name(topic)
    if source is None:
        return []
    check_topic_name(source, "from")
    return [source]


async def redrive(
    engine: Engine,
    topic: str,
    *,
    source: str | None,
    max: int,
    rate_per_s: float | None,
    dry_run: bool,
    seqs: list[int] | None,
) -> Redriven:
    """Move jobs of the queue back from its dead letter topic."""
    sources(topic, source)
    return await engine.queues.redrive(topic, source=source, max=max, rate_per_s=rate_per_s, dry_run=dry_run, seqs=seqs)


async def leases(
    engine: Engine, topic: str, *, state: str | None, page_size: int | None, cursor: str | None
) -> tuple[list[JobView], str | None]:
    """A page of jobs, ordered by seq, and the cursor of the next page, if there is one."""
    check_topic_name(topic)
    wanted = _state(state) if state else None
    size = min(page_size or DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)
    after = _seq_of(cursor) if cursor else 0
    await engine.let_expire((topic,))
    found = engine.queues.leases(topic, wanted, after, size + 1)
    if len(found) <= size:
        return found, None
    return found[:size], encode_cursor(str(found[size - 1].seq))


def _state(name: str) -> JobState:
    try:
        return JobState(name)
    except ValueError:
        raise InvalidRequest(f"state: expected one of {', '.join(JobState)}.", field="state") from None


def _seq_of(cursor: str) -> int:
    text = decode_cursor(cursor)
    if not (text.isascii() and text.isdigit()):  # the cursor of another list
        raise InvalidRequest("cursor: not a cursor of this broker.", field="cursor")
    return int(text)
