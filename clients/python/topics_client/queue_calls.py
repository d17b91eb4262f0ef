"""The calls of queues: requests, and parsers of the answers. No I/O.

Source: docs/reference/api.md#queues.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, TypedDict

from topics_client import answers
from topics_client.calls import getting, sending, topic_path
from topics_client.errors import LeaseLost
from topics_client.values import Claimed, Job, JobPage, Paused, Purged, Redriven, Settled
from topics_client.wire import Call, Replay

#: The most jobs in one ack, nack or extend.
MAX_SEQS = 1000
#: The broker's limit on how long a claim waits.
MAX_WAIT_MS = 30_000


class ClaimOptions(TypedDict, total=False):
    """Options of `claim`; omitted = the broker's default."""

    max: int
    lease_ms: int | None
    wait_ms: int
    attempt_key: str | None


class NackOptions(TypedDict, total=False):
    """Options of `nack`; omitted = the broker's default."""

    delay_ms: int | None
    penalty: bool
    reason: str | None


class RedriveOptions(TypedDict, total=False):
    """Options of `redrive`; omitted = the broker's default."""

    source: str | None
    max: int
    rate_per_s: float | None
    dry_run: bool
    #: Only these records of the topic that they are moved from.
    seqs: list[int] | None


class PurgeOptions(TypedDict, total=False):
    """Options of `purge`; omitted = the broker's default: all jobs up to the head at the call."""

    #: The most jobs. Fewer are deleted only if none is left.
    max: int | None
    #: Only jobs up to this seq, so that repeated calls delete no job that was appended after the first one.
    through_seq: int | None


def claim(topic: str, node: str, options: ClaimOptions) -> Call[Claimed]:
    """A claim always has a key, a random one unless given: a repetition gets the jobs of a lost answer."""
    fields = {"node": node, "attempt_key": uuid.uuid4().hex, **_given(options)}
    wait_s = min(options.get("wait_ms", 0), MAX_WAIT_MS) / 1000
    return Call(
        request=sending("POST", topic_path(topic, "/claim"), fields, wait_s=wait_s),
        parse=answers.claimed,
    )


def ack(
    topic: str, node: str, jobs: Iterable[Job | int], *, strict: bool = False, skip_lost: bool = True
) -> Call[Settled]:
    return _settling("ack", topic, {"node": node, **_named(jobs)}, strict, skip_lost)


def nack(
    topic: str,
    node: str,
    jobs: Iterable[Job | int],
    options: NackOptions,
    *,
    strict: bool = False,
    skip_lost: bool = True,
) -> Call[Settled]:
    return _settling("nack", topic, {"node": node, **_named(jobs), **_given(options)}, strict, skip_lost)


def extend(
    topic: str,
    node: str,
    jobs: Iterable[Job | int],
    lease_ms: int,
    *,
    strict: bool = False,
    skip_lost: bool = True,
) -> Call[Settled]:
    return _settling("extend", topic, {"node": node, **_named(jobs), "lease_ms": lease_ms}, strict, skip_lost)


def _settling(name: str, topic: str, fields: dict[str, Any], strict: bool, skip_lost: bool) -> Call[Settled]:
    # A repetition has no further effect, but a strict call would take its own first attempt for that of another caller.
    target = topic_path(topic, f"/{name}") + ("?strict=true" if strict else "")
    replay = Replay.IF_UNTOUCHED if strict else Replay.SAFE
    request = sending("POST", target, fields, replay=replay)
    check = None if skip_lost else partial(_check_none_lost, name, fields["node"])
    return Call(request=request, parse=answers.settled, check=check)


def _check_none_lost(name: str, node: str, settled: Settled, perhaps_done: bool) -> None:
    """Raises LeaseLost for the skipped jobs.

    Not for an ack or nack whose first attempt may have been carried out: that is then the likely reason, and a caller
    that takes a done job for a lost one may undo its work. An extension can be repeated.
    """
    if not settled.skipped or (perhaps_done and name != "extend"):
        return
    seqs = ", ".join(map(str, settled.skipped))
    others = f" The call counted for the other {settled.count}." if settled.count else ""
    lost = LeaseLost(
        f"Not leased to {node} any more in {settled.topic}: {seqs}.{others}", detail={"seqs": settled.skipped}
    )
    lost.settled = settled
    raise lost


def _named(jobs: Iterable[Job | int]) -> dict[str, Any]:
    """The jobs by seq, and by lease where it is known, so that a late call does not affect the next holder's lease."""
    all_jobs = list(jobs)
    lease_ids = [job.lease_id if isinstance(job, Job) else "" for job in all_jobs]
    seqs = [job.seq if isinstance(job, Job) else job for job in all_jobs]
    return {"seqs": seqs, "lease_ids": lease_ids} if any(lease_ids) else {"seqs": seqs}


def pause(topic: str) -> Call[Paused]:
    return Call(request=sending("POST", topic_path(topic, "/pause"), {}), parse=answers.json_value(Paused))


def resume(topic: str) -> Call[Paused]:
    return Call(request=sending("POST", topic_path(topic, "/resume"), {}), parse=answers.json_value(Paused))


def purge(topic: str, states: Sequence[str], options: PurgeOptions) -> Call[Purged]:
    # Not repeated blindly: without through_seq a later call has a later head, and with max it deletes as many again.
    fields = {"states": list(states), **_given(options)}
    request = sending("POST", topic_path(topic, "/purge"), fields, replay=Replay.IF_UNTOUCHED)
    return Call(request=request, parse=answers.json_value(Purged))


def redrive(topic: str, options: RedriveOptions) -> Call[Redriven]:
    # Not repeated blindly: it would move as many jobs again.
    fields = _given(options)
    if "source" in fields:
        fields["from"] = fields.pop("source")
    rate = options.get("rate_per_s")
    wait_s = options.get("max", 1000) / rate if rate and not options.get("dry_run") else 0.0
    replay = Replay.SAFE if options.get("dry_run") else Replay.IF_UNTOUCHED
    request = sending("POST", topic_path(topic, "/redrive"), fields, wait_s=wait_s, replay=replay)
    return Call(request=request, parse=answers.json_value(Redriven))


def leases_page(topic: str, state: str | None, page_size: int, cursor: str | None) -> Call[JobPage]:
    query = {"state": state, "page_size": str(page_size), "cursor": cursor}
    return Call(request=getting(topic_path(topic, "/leases"), query), parse=answers.json_value(JobPage))


def _given(options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
