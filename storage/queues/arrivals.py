"""Records that other cells move to this one: dead jobs and redrives between cells, on the side of the target.

A copy is remembered (`Moves.came`) until its source says that the record is permanently gone there. If that message was
lost, because the source or this cell was away, this cell asks.

    source                                     here
    Lease{dead}, synced
    moves_came: which copies are there?        waits for those that are being written
    moves_write                                writes those that are not there, synced
    Delete, synced
    moves_finished                             forgets them
                                               ask: are these moves still open?

Every call may arrive twice, late, or not at all: see `storage.platform.Era`, and each method.

Source: docs/cells.md#routers-and-dead-letters-between-cells.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Sequence
from typing import Any, Final

import structlog

from storage.errors import StorageError, StorageFailed, TopicNotFound
from storage.format import is_binary
from storage.log import EncodedUnit, Unit
from storage.platform import Eras, Method
from storage.queues.lease_queue import SharedQueues
from storage.queues.redrive import Redriving, redrive
from storage.queues.targets import Targets, ensure, forget_copies, write_copies
from storage.records import StoredBodies, TopicConfig, cell_of
from storage.state import Topic, shard_of

_log = structlog.get_logger("storage")

#: How often other cells are asked about copies that were remembered a round before, and about how many at a time.
ASK_EVERY_S: Final = 30.0
MAX_ASKED: Final = 10_000


class Arrivals:
    """The methods that other cells call to move records here. Used only on the event loop."""

    def __init__(self, shared: SharedQueues, targets: Targets, queues: Redriving) -> None:
        self._shared = shared
        self._logs = shared.logs
        self._targets = targets
        self._queues = queues
        self._eras = Eras()
        #: (source topic_id, seq) of copies that are being written, and the task that writes them.
        self._coming: dict[tuple[int, int], asyncio.Task[None]] = {}
        #: Copies whose sources are being asked about them, and that were not written again since.
        self._asking: set[tuple[int, int]] = set()
        #: The copies that were remembered in the last round.
        self._before: set[tuple[int, int]] = set()

    @property
    def methods(self) -> dict[str, Method]:
        """The methods by name."""
        return {
            "moves_dest": self._dest,
            "moves_ensure_dest": self._ensure_dest,
            "moves_came": self._came,
            "moves_write": self._write,
            "moves_finished": self._finished,
            "moves_still_open": self._still_open,
            "moves_ask": self._ask,
            "moves_redrive": self._redrive,
        }

    # -- the target's side -------------------------------------------------------------------------------------------

    async def _dest(self, topic_id: int) -> str | None:
        """The name of the topic; None if it is gone."""
        self._logs.check_open()
        topic = self._logs.catalog.by_id.get(topic_id)
        return None if topic is None else topic.name

    async def _ensure_dest(self, argument: Any) -> tuple[int, int]:
        """(id of the topic of that name, this cell); the topic is made with this config if it is missing. (0, the cell
        to ask) if it belongs to another cell."""
        name, config = argument
        self._logs.check_open()
        neighbours = self._logs.neighbours
        if neighbours is not None and name not in self._logs.catalog.topics:
            cell = neighbours.owner(name)
            if cell != neighbours.me:
                return 0, cell
        topic = await ensure(self._logs, self._shared.topics, name, TopicConfig.from_map(config))
        return topic.topic_id, cell_of(topic.topic_id)

    async def _arrived(self, era: int, source_id: int, dest_id: int, seqs: Sequence[int]) -> Topic | None:
        """The target, once no copies of these records are being written. None if it is gone."""
        self._logs.check_open()
        self._eras.enter(cell_of(source_id), era)
        while coming := {self._coming[source_id, seq] for seq in seqs if (source_id, seq) in self._coming}:
            await asyncio.wait(coming)
        return self._logs.catalog.by_id.get(dest_id)

    async def _came(self, argument: Any) -> list[int] | None:
        """Those of these records that have a copy here. Copies of the others come only by a later call."""
        era, source_id, dest_id, seqs = argument
        topic = await self._arrived(era, source_id, dest_id, seqs)
        if topic is None:
            return None
        found = [seq for seq in seqs if (source_id, seq) in topic.log.moves.came]
        if len(found) < len(seqs):
            self._check_alive(topic)
        return found

    def _check_alive(self, topic: Topic) -> None:
        if self._logs.shards[topic.log.shard].log.failed is not None:
            raise StorageFailed()  # the frame that was in flight may be in the log: only the next start can know

    async def _write(self, argument: Any) -> bool:
        """Write the missing copies, synced. False if the topic is gone."""
        era, source_id, dest_id, seqs, bodies, tags, payloads, node = argument
        self._logs.check_open()
        self._eras.enter(cell_of(source_id), era)
        while coming := {self._coming[source_id, seq] for seq in seqs if (source_id, seq) in self._coming}:
            await asyncio.wait(coming)
        topic = self._logs.catalog.by_id.get(dest_id)
        if topic is None:
            return False
        came = topic.log.moves.came
        new = [number for number, seq in enumerate(seqs) if (source_id, seq) not in came]
        self._asking.difference_update([(source_id, seq) for seq in seqs])
        if not new:
            return True
        self._check_alive(topic)
        picked = [bodies[number] for number in new]
        copies = StoredBodies(
            picked,
            None if tags is None else [tags[number] for number in new],
            bytes(map(is_binary, picked)),
            array("I", [payloads[number] for number in new]),
        )
        wanted = [seqs[number] for number in new]
        writing = self._logs.runtime.loop.create_task(
            write_copies(self._targets.appender, topic, source_id, wanted, copies, node), name="storage-arrivals"
        )
        keys = [(source_id, seq) for seq in wanted]
        self._coming.update(dict.fromkeys(keys, writing))

        def written(done: asyncio.Task[None]) -> None:
            for key in keys:
                del self._coming[key]
            if not done.cancelled():
                done.exception()  # retrieve it: the caller may have gone

        writing.add_done_callback(written)
        try:
            await asyncio.shield(writing)
        except TopicNotFound:
            return False
        return True

    async def _finished(self, argument: Any) -> None:
        """These records are permanently deleted at their source. That stays true, so a late or repeated call does no
        harm."""
        era, source_id, dest_id, seqs = argument
        topic = await self._arrived(era, source_id, dest_id, seqs)
        if topic is not None:
            forget_copies(topic, source_id, seqs)

    async def _still_open(self, argument: Any) -> None:
        """A process of the source's cell has started. These are its open moves to this cell; all its others are
        finished.

        It writes no other copies before it has this answer.
        """
        era, source_id, dest_id, still = argument
        topic = await self._arrived(era, source_id, dest_id, ())
        if topic is None:
            return
        known = frozenset(still)
        forget_copies(
            topic, source_id, [seq for each, seq in topic.log.moves.came if each == source_id and seq not in known]
        )

    # -- asking ------------------------------------------------------------------------------------------------------

    async def ask(self) -> None:
        """Ask about copies without a message for a round, and forget those whose moves are over.

        Also about those from a topic of this cell that is gone: if it was deleted while they were written, nobody
        finishes their moves."""
        catalog = self._logs.catalog
        seen: set[tuple[int, int]] = set()
        due: dict[tuple[int, int], list[int]] = {}
        for topic in [*catalog.by_id.values()]:
            for source_id, seq in topic.log.moves.came if topic.log.moves.came else ():
                if catalog.is_foreign(source_id) or source_id not in catalog.by_id:
                    seen.add((source_id, seq))
                    if (source_id, seq) in self._before:
                        due.setdefault((topic.topic_id, source_id), []).append(seq)
        self._before = seen
        for (dest_id, source_id), seqs in due.items():
            for begin in range(0, len(seqs), MAX_ASKED):
                await self._ask_about(dest_id, source_id, seqs[begin : begin + MAX_ASKED])

    async def _ask_about(self, dest_id: int, source_id: int, seqs: list[int]) -> None:
        neighbours, cell = self._logs.neighbours, cell_of(source_id)
        asked = {(source_id, seq) for seq in seqs}
        self._asking |= asked
        try:
            if neighbours is not None and self._logs.catalog.is_foreign(source_id):
                era, still = await neighbours.call(cell, "moves_ask", [source_id, seqs])
                self._eras.enter(cell, era)
            else:
                _, still = await self._ask([source_id, seqs])
        except StorageError:
            self._asking -= asked
            return  # the next round asks again
        topic = self._logs.catalog.by_id.get(dest_id)
        unchanged = asked & self._asking
        self._asking -= asked
        if topic is not None:
            gone = unchanged - {(source_id, seq) for seq in still}
            forget_copies(topic, source_id, [seq for _, seq in gone])

    # -- the source's side -------------------------------------------------------------------------------------------

    async def _ask(self, argument: Any) -> tuple[int, list[int]]:
        """Returns (this process's era, those of these moves that are still open). The frames that the answer depends on
        are synced."""
        source_id, seqs = argument
        logs = self._logs
        logs.check_open()
        shard = logs.shards[shard_of(source_id, len(logs.shards))]
        if shard.log.failed is not None:
            raise StorageFailed()
        topic = logs.catalog.by_id.get(source_id)
        out = topic.log.moves.out if topic is not None else {}
        still = [seq for seq in seqs if seq in out]
        era = self._targets.era.now
        await logs.submit_unit(shard, 0, EncodedUnit(Unit(None, []), b"", 0), frees=True)
        return era, still

    async def _redrive(self, argument: Any) -> tuple[int, int]:
        """Redrive from a topic of this cell to a queue of another one. Returns (moved, remaining). See
        `Queues.redrive`."""
        queue_id, queue, source, count, rate_per_s, dry_run, seqs = argument
        self._logs.check_open()
        dest = await self._targets.find(queue_id)
        if dest is None:
            raise TopicNotFound(queue)
        done = await redrive(self._shared, self._queues, dest, source, count, rate_per_s, dry_run=dry_run, seqs=seqs)
        return done.moved, done.remaining
