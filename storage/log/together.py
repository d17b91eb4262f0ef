"""Writes of one record each that come together go together: one way through the engine, one run of frames.

Most of what a write of one record costs is not the record. Those that are handed in within one turn of the event loop,
for one topic and from one node, are looked at, given seqs, encoded and published as one run. On disk each is a unit of
its own, as if they had come one behind the other: after a crash there may be any first part of them, and whoever was
answered is among those. Where anything stands against all of them together (a cap, a limit, something to be waited
for), each is tried by itself. Source: storage.md §2, §3; architecture.md (what speed costs here).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from storage.errors import StorageError
from storage.log.append import Settling, Write
from storage.records.values import Appended, PlainRecords

if TYPE_CHECKING:
    from storage.engine import Engine

#: Of one topic and node in one run, at most.
MAX_TOGETHER: Final = 256


class Single(NamedTuple):
    """A write of one record. `settled` is told its outcome, or else `left` is called: nothing was done. Neither raises:
    others of the same turn are told behind them."""

    data: msgspec.Raw
    settled: Callable[[Appended | Exception], None]
    left: Callable[[], None]


class Together:
    """Those that came in this turn of the loop. One of an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._parties: dict[tuple[str, str | None], list[Single]] = {}
        options = engine.options
        #: No more than a batch may have. What is larger than the log's queue is let in where nothing is under way, for
        #: else it never would be: a run is not to be such a write.
        self._most = max(1, min(MAX_TOGETHER, options.max_batch_records, options.wal_queue_frames // 8))

    def add(self, name: str, node: str | None, single: Single) -> bool:
        """Goes with those that come until the loop's next turn. False: nothing was done, nobody will be told.

        Where its log has nothing under way it goes at once: whoever writes alone is not made to wait for company.
        """
        if not self._parties:
            topic = self._engine.catalog.topics.get(name)
            if topic is None or not self._engine.shards[topic.logs[0].shard].unresolved:
                return self._attempt(name, node, [single])
            asyncio.get_running_loop().call_soon(self._go)
        self._parties.setdefault((name, node), []).append(single)
        return True

    def _go(self) -> None:
        parties, self._parties = self._parties, {}
        for (name, node), singles in parties.items():
            for begin in range(0, len(singles), self._most):
                self._write(name, node, singles[begin : begin + self._most])

    def _write(self, name: str, node: str | None, singles: list[Single]) -> None:
        if len(singles) > 1:
            try:
                if self._attempt(name, node, singles):
                    return
            except StorageError:
                pass  # of one of them, maybe
            except Exception as error:  # how far they have come is unknown: a second try could do it twice
                for each in singles:
                    each.settled(error)
                return
        for each in singles:
            try:
                is_on_its_way = self._attempt(name, node, [each])
            except StorageError:
                is_on_its_way = False
            except Exception as error:
                each.settled(error)
                continue
            if not is_on_its_way:
                each.left()

    def _attempt(self, name: str, node: str | None, singles: list[Single]) -> bool:
        write = Write(
            self._engine,
            name,
            PlainRecords([each.data for each in singles]),
            node=node,
            key=None,
            strict=False,
            create=False,
            config=None,
            expected_seq=None,
            writers=len(singles),
        )
        if len(singles) == 1:
            return write.attempt(Settling(write, singles[0].settled))
        return write.attempt(Settling(write, _Shared([each.settled for each in singles])))


class _Shared:
    """Tells everybody of a run what became of it; none of them raises."""

    __slots__ = ("_settled",)

    def __init__(self, settled: list[Callable[[Appended | Exception], None]]) -> None:
        self._settled = settled

    def __call__(self, outcome: Appended | Exception) -> None:
        if isinstance(outcome, Exception):
            for settled in self._settled:
                settled(outcome)
            return
        topic, head_seq = outcome.topic, outcome.head_seq
        written_ms, synced_ms = outcome.wal_append_ms, outcome.fsync_ms
        for seq, settled in enumerate(self._settled, outcome.first_seq):
            settled(
                Appended(
                    topic=topic,
                    first_seq=seq,
                    last_seq=seq,
                    head_seq=head_seq,
                    count=1,
                    wal_append_ms=written_ms,
                    fsync_ms=synced_ms,
                )
            )
