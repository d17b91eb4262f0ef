"""Writes of one record each that come together go together: one way through the engine, one run of frames.

Most of what a write of one record costs is not the record. Those that are handed in within one turn of the event loop,
for one topic and from one node, are looked at, given seqs, encoded and published as one run. On disk each is a unit of
its own, as if they had come one behind the other: after a crash there may be any first part of them, and whoever was
answered is among those. Where anything stands against all of them together (a cap, a limit, something to be waited
for), each is tried by itself.

Source: docs/reference/format.md#frames, docs/reference/guarantees.md#crash-points-of-a-write, docs/performance.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from storage.errors import StorageError
from storage.log.append import AppendCallback, Write
from storage.records.values import Appended, PlainRecords

if TYPE_CHECKING:
    from storage.engine import Engine

#: Of one topic and node in one run, at most.
MAX_COALESCED: Final = 256


class PendingAppend(NamedTuple):
    """A write of one record. `on_result` is told its outcome, or else `fallback` is called: nothing was done.
    Neither raises: others of the same turn are told behind them."""

    data: msgspec.Raw
    on_result: Callable[[Appended | Exception], None]
    fallback: Callable[[], None]


class AppendCoalescer:
    """Those that came in this turn of the loop. One of an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._pending: dict[tuple[str, str | None], list[PendingAppend]] = {}
        options = engine.options
        #: No more than a batch may have. What is larger than the log's queue is let in where nothing is under way, for
        #: else it never would be: a run is not to be such a write.
        self._most = max(1, min(MAX_COALESCED, options.max_batch_records, options.wal_queue_frames // 8))

    def add(self, name: str, node: str | None, one: PendingAppend) -> bool:
        """Goes with those that come until the loop's next turn. False: nothing was done, nobody will be told.

        Where its log has nothing under way it goes at once: whoever writes alone is not made to wait for more writes.
        """
        if not self._pending:
            topic = self._engine.catalog.topics.get(name)
            if topic is None or not self._engine.shards[topic.logs[0].shard].unresolved:
                return self._attempt(name, node, [one])
            asyncio.get_running_loop().call_soon(self._go)
        self._pending.setdefault((name, node), []).append(one)
        return True

    def _go(self) -> None:
        pending, self._pending = self._pending, {}
        for (name, node), appends in pending.items():
            for begin in range(0, len(appends), self._most):
                self._write(name, node, appends[begin : begin + self._most])

    def _write(self, name: str, node: str | None, appends: list[PendingAppend]) -> None:
        if len(appends) > 1:
            try:
                if self._attempt(name, node, appends):
                    return
            except StorageError:
                pass  # of one of them, maybe
            except Exception as error:  # how far they have come is unknown: a second try could do it twice
                for each in appends:
                    each.on_result(error)
                return
        for each in appends:
            try:
                is_on_its_way = self._attempt(name, node, [each])
            except StorageError:
                is_on_its_way = False
            except Exception as error:
                each.on_result(error)
                continue
            if not is_on_its_way:
                each.fallback()

    def _attempt(self, name: str, node: str | None, appends: list[PendingAppend]) -> bool:
        write = Write(
            self._engine,
            name,
            PlainRecords([each.data for each in appends]),
            node=node,
            key=None,
            strict=False,
            create=False,
            config=None,
            expected_seq=None,
            writers=len(appends),
        )
        if len(appends) == 1:
            return write.attempt(AppendCallback(write, appends[0].on_result))
        return write.attempt(AppendCallback(write, _Shared([each.on_result for each in appends])))


class _Shared:
    """Tells everybody of a run what became of it; none of them raises."""

    __slots__ = ("_callbacks",)

    def __init__(self, on_result: list[Callable[[Appended | Exception], None]]) -> None:
        self._callbacks = on_result

    def __call__(self, outcome: Appended | Exception) -> None:
        if isinstance(outcome, Exception):
            for on_result in self._callbacks:
                on_result(outcome)
            return
        topic, head_seq = outcome.topic, outcome.head_seq
        written_ms, synced_ms = outcome.wal_append_ms, outcome.fsync_ms
        for seq, on_result in enumerate(self._callbacks, outcome.first_seq):
            on_result(
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
