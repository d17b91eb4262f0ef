"""Decides where a batch of a stream ends, from offsets alone. Pure.

Offsets are {topic: {partition: {epoch, seq, cluster_id}}}, seq the first one not yet read. Epochs are counted by each
broker, so only both tell whether a topic is the same. Offsets of earlier versions have no cluster id.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NotRequired, TypedDict

from pipeline.errors import RECREATED, REINSTALLED
from pipeline.planning import shares
from pipeline.view import LogView


class Offset(TypedDict):
    """A position in a partition, in the form that Spark stores as JSON."""

    epoch: int
    seq: int
    cluster_id: NotRequired[str]


Offsets = dict[str, dict[str, Offset]]


def at_seq(view: LogView, seq: int) -> Offset:
    """An offset in a log."""
    return {"epoch": view.epoch, "seq": seq, "cluster_id": view.cluster_id}


def is_other(one: Offset, other: Offset) -> bool:
    """Whether two offsets are certainly of different logs."""
    return one["epoch"] != other["epoch"] or _is_elsewhere(one, other)


def why_other(one: Offset, other: Offset) -> str:
    """The reason of the loss between offsets of different logs."""
    return REINSTALLED if _is_elsewhere(one, other) else RECREATED


def _is_elsewhere(one: Offset, other: Offset) -> bool:
    ids = one.get("cluster_id"), other.get("cluster_id")
    return all(ids) and ids[0] != ids[1]


class Delay:
    """Delays batches of fewer than `least` seqs, by `longest_ms` at most. `least` None: never.

    As in Kafka's source, the first batch of a query is not delayed, and each one restarts the time.
    """

    def __init__(self, least: int | None, longest_ms: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._least = least
        self._longest_s = longest_ms / 1000
        self._clock = clock
        self._last_s: float | None = None

    def holds(self, begins: Offsets, ends: Offsets) -> bool:
        """Whether the batch from `begins` to `ends` has to wait."""
        if self._least is None:
            return False
        now = self._clock()
        waits = self._last_s is not None and now - self._last_s < self._longest_s
        if waits and sum(map(sum, (each.values() for each in waiting_seqs(begins, ends).values()))) < self._least:
            return True
        self._last_s = now
        return False


def waiting_seqs(begins: Offsets, ends: Offsets) -> dict[str, dict[str, int]]:
    """The number of seqs between the offsets, by topic and partition. Partitions of `ends` count."""
    return {
        topic: {at: _waiting(begins.get(topic, {}).get(at), last) for at, last in partitions.items()}
        for topic, partitions in ends.items()
    }


def advance(begins: Offsets, ends: Offsets, most: int | None) -> Offsets:
    """The end of a batch of at most `most` seqs. Each partition gets its share of what waits, at least one seq.

    Offsets never decrease: one that is after the end (startingOffsets may say so) stays.
    """
    waiting = {
        (topic, at): count
        for topic, partitions in waiting_seqs(begins, ends).items()
        for at, count in partitions.items()
    }
    given = waiting if most is None else shares(waiting, most)
    found: Offsets = {topic: {} for topic in ends}
    for topic, at in waiting:
        first, last = begins[topic][at], ends[topic][at]
        if not is_other(first, last):
            # With the cluster id, which an offset of an earlier version lacks.
            found[topic][at] = {**last, "seq": first["seq"] + given[topic, at]}
        elif given[topic, at] or not waiting[topic, at]:
            found[topic][at] = {**last, "seq": 1 + given[topic, at]}
        else:
            found[topic][at] = first
    return found


def _waiting(first: Offset | None, last: Offset) -> int:
    if first is None or is_other(first, last):
        return max(0, last["seq"] - 1)
    return max(0, last["seq"] - first["seq"])
