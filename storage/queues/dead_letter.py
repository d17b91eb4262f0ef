"""Moves records from log to log, each exactly once over crashes: dead jobs to their dead letter topic, and back.

A move goes through the steps of `moves`; whatever step a crash or a refusal comes at, the next try goes on from there.
What is refused (the target is full, or cannot be made) stays where it is, unclaimable, and is tried again.
Source: api.md §6.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import structlog

from storage.append import Write
from storage.catalog import Topic
from storage.config import TopicConfig
from storage.errors import StorageError, StorageFailed
from storage.format import control
from storage.format.control import Lease
from storage.queues import reading
from storage.queues.dead_meta import dead_lettered, redriven
from storage.queues.job import DEAD
from storage.queues.moves import Move
from storage.queues.policy import limits_of
from storage.records import StoredBodies, StoredRecord
from storage.tracing import moving

if TYPE_CHECKING:
    from storage.queues.queues import Queues

_log = structlog.get_logger("storage")

#: Most moves of one log under way together: they share the groups of the log.
SIDE_BY_SIDE = 64
MIN_BACKOFF_S, MAX_BACKOFF_S = 0.5, 30.0


class Mover:
    """One task a log that has something to be moved."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._engine = queues.engine
        self._tasks: dict[int, asyncio.Task[None]] = {}
        #: (source topic_id, seq) of moves that somebody is carrying out, redrives too.
        self._under_way: dict[tuple[int, int], asyncio.Future[None]] = {}
        #: Those whose first step somebody is about to take.
        self.opening: set[tuple[int, int]] = set()
        self._stopped = False

    def kick(self, topic: Topic) -> None:
        """There may be something to be moved out of this topic."""
        if not self._stopped and topic.topic_id not in self._tasks:
            task = self._engine.loop.create_task(self._run(topic), name="storage-mover")
            self._tasks[topic.topic_id] = task
            task.add_done_callback(partial(self._ended, topic.topic_id))

    def _ended(self, topic_id: int, task: asyncio.Task[None] | None = None) -> None:
        if task is None or self._tasks.get(topic_id) is task:
            self._tasks.pop(topic_id, None)

    async def stop(self) -> None:
        """No move is begun any more; those under way have come to an end, or go on after the next start."""
        self._stopped = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task

    def _pending(self, topic: Topic) -> list[int]:
        log = topic.log
        dying = log.queue.dying if log.queue is not None else set[int]()
        return sorted(dying | log.moves.out.keys())

    async def _run(self, topic: Topic) -> None:
        backoff_s, after = MIN_BACKOFF_S, 0
        while self._engine.catalog.by_id.get(topic.topic_id) is topic and (pending := self._pending(topic)):
            # In turn: those that are refused for good must not keep the ones behind them from being tried.
            seqs = [seq for seq in pending if seq > after][:SIDE_BY_SIDE] or pending[:SIDE_BY_SIDE]
            after = seqs[-1]
            moved = await asyncio.gather(*(self._try(topic, seq) for seq in seqs))
            if all(moved):
                backoff_s = MIN_BACKOFF_S
                continue
            await self._engine.clock.sleep(backoff_s)
            backoff_s = min(MAX_BACKOFF_S, backoff_s * 2)
        # In the very step that found nothing to be moved: whoever has something from now on begins another task.
        self._ended(topic.topic_id)

    async def _try(self, topic: Topic, seq: int) -> bool:
        try:
            await self.move(topic, seq)
            return True
        except StorageError as error:
            _log.warning("move_refused", topic=topic.name, seq=seq, error=str(error))
        except Exception:
            _log.exception("move_failed", topic=topic.name, seq=seq)
        return False

    async def move(self, topic: Topic, seq: int) -> bool:
        """One step after the other until the record is gone from here. Raises StorageError when one is refused.

        False: it was called off, or there was nothing to be moved any more.

        One caller a move at a time: two who both find that the copy has not come would make two.
        """
        key = (topic.topic_id, seq)
        while (other := self._under_way.get(key)) is not None:
            await asyncio.wait([other])
        done = self._under_way[key] = self._engine.loop.create_future()
        try:
            return await self._move(topic, seq)
        finally:
            del self._under_way[key]
            done.set_result(None)

    async def _move(self, topic: Topic, seq: int) -> bool:
        log = topic.log
        if seq not in log.moves.out and not await self._open(topic, seq):
            return not log.is_live(seq)  # another caller may have come first
        move = log.moves.out.get(seq)
        if move is None:
            return False
        if not log.is_live(seq):  # lost or deleted meanwhile, and said to be: the copy, if any, is all there is
            log.moves.out.pop(seq, None)
            log.section = None
            return False
        dest = self._engine.catalog.by_id.get(move.dest_id)
        came = dest is not None and (log.topic_id, seq) in dest.log.moves.came
        if dest is None:  # deleted, and the copy with it if there was one
            await self._call_off(topic, seq, move)
            return False
        if not came and self._may_have_come(dest):
            raise StorageFailed()
        if not came and not self._wanted(topic, dest, move):
            await self._call_off(topic, seq, move)
            return False
        if not came and not await self._copy(topic, seq, move, dest):
            return False
        await self._finish(topic, seq, dest)
        return True

    def _may_have_come(self, dest: Topic) -> bool:
        """Whether only the next start can tell: what was on its way when the shard stopped may be there after all."""
        return self._engine.shards[dest.log.shard].log.failed is not None

    @staticmethod
    def _wanted(topic: Topic, dest: Topic, move: Move) -> bool:
        """Whether it is still to go there: a dead job goes where the settings say now."""
        return not move.deliveries or topic.config.dead_letter == dest.name

    async def _open(self, topic: Topic, seq: int) -> bool:
        """Step 1 for a dead job; False when it is dead no more."""
        table = topic.log.queue
        job = table.jobs.get(seq) if table is not None else None
        if table is None or job is None or job.state != DEAD:
            return False
        dest = await self.dead_letter_topic(topic)
        while (changing := self._engine.changing.get(topic.topic_id)) is not None:
            await asyncio.wait([changing])  # by other limits it may live on: that is to be known before it is decided
        if dest is None or table.jobs.get(seq) is not job or job.state != DEAD:
            table.review(limits_of(topic.config))
            return False
        value = Lease(event="dead", jobs=[job.row()], dest_id=dest.topic_id, reason=job.reason)
        await self._queues.commit(topic, [value], sync=True)
        return True

    async def dead_letter_topic(self, topic: Topic) -> Topic | None:
        """Where dead jobs of this queue go, made if it is not there; None: they go nowhere."""
        name = topic.config.dead_letter
        if name is None:
            return None
        there = self._engine.catalog.topics.get(name)
        if there is None or there.provisional:
            # Another move may be making it just now: behind a change of it, it is there.
            config = TopicConfig(durability=topic.config.durability) if there is None else there.config
            await self._engine.admin.put(name, config)
        return self._engine.topic(name)

    async def _call_off(self, topic: Topic, seq: int, move: Move) -> None:
        table = topic.log.queue
        job = table.jobs.get(seq) if table is not None else None
        forgiven = job.forgiven if job is not None else 0
        value = Lease(event="released", jobs=[(seq, 0, 0, move.deliveries, 0, forgiven)], reason=move.reason)
        await self._queues.commit(topic, [value])

    async def call_off(self, topic: Topic, seqs: list[int]) -> None:
        """Of these open moves those whose copies have not come are none any more."""
        for seq in seqs:
            move = topic.log.moves.out.get(seq)
            dest = self._engine.catalog.by_id.get(move.dest_id) if move is not None else None
            came = dest is not None and (topic.topic_id, seq) in dest.log.moves.came
            if move is not None and not came and (dest is None or not self._may_have_come(dest)):
                await self._call_off(topic, seq, move)

    async def _copy(self, topic: Topic, seq: int, move: Move, dest: Topic) -> bool:
        """Step 2. False: there is nothing to copy, because the record was lost or deleted just now."""
        found = await reading.read(self._engine, topic, [seq])
        record = found.records.get(seq)
        if record is None:
            if found.corrupt:
                raise reading.corrupt(topic.name, seq)
            if seq in found.unreadable:
                raise found.unreadable[seq]
            # What cannot be read is not there any more, or else it must not be deleted as if it had been copied.
            if topic.log.is_live(seq):
                raise StorageError(f"Record {seq} of {topic.name} cannot be read now.")
            return False
        what = "dead_letter" if move.deliveries else "redrive"
        with moving(self._engine.tracer, what, topic.name, dest.name, [record]):
            await Write(
                self._engine,
                dest.name,
                _copy_of(record, topic.name, move),
                node=record.node.decode() or None,
                key=None,
                strict=False,
                create=False,
                config=None,
                expected_seq=None,
                move=(topic.topic_id, seq),
                dest_id=dest.topic_id,
            ).run()
        return True

    async def _finish(self, topic: Topic, seq: int, dest: Topic) -> None:
        """Step 3, and dest may forget."""
        log = topic.log
        await self._queues.delete(topic, control.Delete(bound_head=log.head, seqs=[seq], ack=True), None, sync=True)
        dest.log.moves.came.discard((log.topic_id, seq))
        dest.log.section = None
        self._queues.stats.moved += 1


def _copy_of(record: StoredRecord, queue: str, move: Move) -> StoredBodies:
    if not move.deliveries:
        return redriven(record)
    return dead_lettered(record, queue, move.deliveries, move.reason)
