"""Decides where a batch of a stream ends, from offsets alone. Pure.

Offsets are {topic: {partition: {epoch, seq}}}, seq the first one not yet read.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from pipeline.planning import shares

Offset = dict[str, int]
Offsets = dict[str, dict[str, Offset]]


def at_seq(epoch: int, seq: int) -> Offset:
    """An offset."""
    return {"epoch": epoch, "seq": seq}


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
        begin = first["seq"] if first["epoch"] == last["epoch"] else 1
        moved = given[topic, at] or (first["epoch"] != last["epoch"] and not waiting[topic, at])
        found[topic][at] = at_seq(last["epoch"], begin + given[topic, at]) if moved else first
    return found


def _waiting(first: Offset | None, last: Offset) -> int:
    if first is None or first["epoch"] != last["epoch"]:
        return max(0, last["seq"] - 1)
    return max(0, last["seq"] - first["seq"])
