"""Jobs: claiming, settling, looking after queues. Names are judged here, the rest by the engine.

Source: docs/reference/api.md#queues.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING, Final

import msgspec

from broker.limits import Slots
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
    """What a worker asks for; what is too much is clamped by the engine."""

    topic: str
    node: str
    max: int = 1
    lease_ms: int | None = None
    wait_ms: int = 0
    attempt_key: str | None = None


class Work(msgspec.Struct, kw_only=True):
    """Who wants jobs pushed, and how many at a time."""

    topic: str
    node: str
    max: int = 1
    lease_ms: int | None = None


class Settle(msgspec.Struct, kw_only=True):
    """Which jobs of whom an ack, nack or extend is about. A token of 0 stands for none given."""

    topic: str
    node: str
    seqs: list[int]
    lease_ids: Sequence[int] | None = None
    strict: bool = False


def claimable_bytes(engine: Engine, topic: str, max: int) -> tuple[int, int]:
    """How large one job is in the mean, and as many as a claim of `max` would be given now. Raises InvalidRequest,
    TopicNotFound, NotAQueue.
    """
    check_topic_name(topic)
    return engine.queues.claimable_bytes(topic, max)


def check_claim(engine: Engine, asked: Claim) -> None:
    """Raises InvalidRequest, NotReady, ShuttingDown: what `claim` refuses before it looks the queue up."""
    check_topic_name(asked.topic)
    engine.queues.check_claim(asked.node, asked.max, asked.wait_ms, asked.attempt_key)


async def claim(engine: Engine, asked: Claim, max_bytes: int = 0) -> Claimed:
    """What there is now, about `max_bytes` of it (see `Queues.claim`). Raises InvalidRequest, TopicNotFound, NotAQueue,
    Unavailable.
    """
    check_topic_name(asked.topic)
    return await _claim(engine, asked, 0, max_bytes)


async def claim_on(
    engine: Engine, parking: Slots, asked: Claim, empty: Claimed, began: float, max_bytes: int = 0
) -> Claimed:
    """Go on with a claim that found nothing until there is a job or its wait_ms since `began` have passed.

    At shutdown the `empty` answer is given at once. Raises LimitReached (too many waiting) and as `claim`.
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
    """On return the jobs are gone for good, as safely as the topic's class says. Raises LeaseLost when strict."""
    check_topic_name(asked.topic)
    return await engine.queues.ack(asked.topic, asked.node, asked.seqs, lease_ids=asked.lease_ids, strict=asked.strict)


async def nack(engine: Engine, asked: Settle, *, delay_ms: int | None, penalty: bool, reason: str | None) -> Settled:
    """The jobs can be had again after `delay_ms`, or the queue's backoff. Raises LeaseLost when strict."""
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
    """The leases now end `lease_ms` from now. Raises LeaseLost when strict."""
    check_topic_name(asked.topic)
    return await engine.queues.extend(
        asked.topic, asked.node, asked.seqs, lease_ms, lease_ids=asked.lease_ids, strict=asked.strict
    )


def work(engine: Engine, asked: Work) -> Worker:
    """`async with` it; within, it gives jobs one by one. Those not settled at the end go back at once.

    Raises InvalidRequest, TopicNotFound, NotAQueue; what ends it later is raised to whoever takes jobs from it.
    """
    check_topic_name(asked.topic)
    return engine.queues.work(asked.topic, asked.node, max=asked.max, lease_ms=asked.lease_ms)


async def pause(engine: Engine, topic: str) -> bool:
    """Durably: nothing is handed out any more. Whether it is paused now."""
    check_topic_name(topic)
    return await engine.queues.pause(topic)


async def resume(engine: Engine, topic: str) -> bool:
    """Durably: jobs are handed out again. Whether it is paused now."""
    check_topic_name(topic)
    return await engine.queues.resume(topic)


async def purge(engine: Engine, topic: str, states: Sequence[str]) -> int:
    """Deletes for good the jobs that stand so and came before the call. How many."""
    check_topic_name(topic)
    await engine.let_expire((topic,))
    return await engine.queues.purge(topic, states=tuple(JobState(state) for state in states))


def sources(topic: str, source: str | None) -> list[str]:
    """The topics that a redrive names beside the queue. Raises InvalidRequest."""
    check_topic_name(topic)
    if source is None:
        return []
    check_topic_name(source, "from")
    return [source]


async def redrive(
    engine: Engine, topic: str, *, source: str | None, max: int, rate_per_s: float | None, dry_run: bool
) -> Redriven:
    """Brings back to the queue the jobs that it gave to its dead letter topic."""
    sources(topic, source)
    return await engine.queues.redrive(topic, source=source, max=max, rate_per_s=rate_per_s, dry_run=dry_run)


async def leases(
    engine: Engine, topic: str, *, state: str | None, page_size: int | None, cursor: str | None
) -> tuple[list[JobView], str | None]:
    """One page of jobs by seq, and the cursor of the next one when more follow."""
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
        raise InvalidRequest(f"state: one of {', '.join(JobState)}.", field="state") from None


def _seq_of(cursor: str) -> int:
    text = decode_cursor(cursor)
    if not (text.isascii() and text.isdigit()):  # one of another list
        raise InvalidRequest("cursor: not one that this broker gave out.", field="cursor")
    return int(text)
