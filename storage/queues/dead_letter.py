"""Moves records from log to log, exactly once even across crashes: dead jobs to their dead letter topic, and back.

A move takes the steps in `moves`. After a crash or a refusal at any step, the next attempt continues from there. Many
moves share frames: one Lease{dead} for each reason, one batch of copies for each node, and one Delete for all. If that
fails, they are tried one by one. A refused move (the target is full, or cannot be created) leaves its job in place,
where it cannot be claimed, and is tried again.

Source: docs/reference/api.md#queues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby, repeat
from operator import attrgetter
from typing import Any, NamedTuple

import structlog

from storage.errors import StorageError, TopicNotFound
from storage.format import Lease, control
from storage.log import Appender
from storage.queues import job_records
from storage.queues.dead_meta import copies_of
from storage.queues.lease_queue import SharedQueues
from storage.queues.targets import Target, Targets
from storage.records import StoredRecord, TopicConfig
from storage.state import Topic
from storage.state.queues import DEAD, LeaseEntry, Move, limits_of
from storage.telemetry import Tracer, moving
from storage.topics import Placing

_log = structlog.get_logger("storage")

#: The most moves of one log that share frames, and how many such groups run at a time: some wait for a sync while
#: others are prepared.
MAX_MOVES, AT_ONCE = 1000, 2
#: The most single moves that run at a time.
SIDE_BY_SIDE = 64
MIN_BACKOFF_S, MAX_BACKOFF_S = 0.5, 30.0
_node_of = attrgetter("node")


class MovedJobs(NamedTuple):
    """The outcome of many moves: seqs that were moved, and seqs that were not (yet)."""

    moved: list[int]
    remaining: list[int]


class Mover:
    """One task for each log that has something to move."""

    def __init__(
        self, shared: SharedQueues, appender: Appender, placing: Placing, tracer: Callable[[], Tracer | None]
    ) -> None:
        """`tracer` returns the tracer, or None."""
        self._shared = shared
        self._logs = shared.logs
        self.targets = Targets(appender, shared.topics, placing)
        self._tracer = tracer
        self._tasks: dict[int, asyncio.Task[None]] = {}
        #: (source topic_id, seq) of moves in progress, redrives included.
        self._under_way: dict[tuple[int, int], asyncio.Future[None]] = {}
        #: Moves in progress, and groups of them. They continue when their caller is gone.
        self._working: set[asyncio.Task[Any]] = set()
        #: Moves whose first step is about to be taken.
        self.opening: set[tuple[int, int]] = set()
        self._stopped = False

    def kick(self, topic: Topic) -> None:
        """Move records out of this topic, if there are any to move."""
        if not self._stopped and topic.topic_id not in self._tasks:
            task = self._logs.runtime.loop.create_task(self._run(topic), name="storage-mover")
            self._tasks[topic.topic_id] = task
            task.add_done_callback(partial(self._ended, topic.topic_id))

    def _ended(self, topic_id: int, task: asyncio.Task[None] | None = None) -> None:
        if task is None or self._tasks.get(topic_id) is task:
            self._tasks.pop(topic_id, None)

    async def stop(self) -> None:
        """Begin no further moves. On return, moves in progress have ended, or continue after the next start."""
        self._stopped = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
        working = [*self._working]
        for each in working:
            each.cancel()
        await asyncio.gather(*working, return_exceptions=True)

    def _pending(self, topic: Topic) -> list[int]:
        log = topic.log
        dying = log.queue.dying if log.queue is not None else set[int]()
        return sorted(dying | log.moves.out.keys())

    async def _run(self, topic: Topic) -> None:
        backoff_s = MIN_BACKOFF_S
        while pending := self._pending(topic):
            # Take turns: moves that are refused for good must not keep later ones from being tried.
            for begin in range(0, len(pending), AT_ONCE * MAX_MOVES):
                if self._logs.catalog.by_id.get(topic.topic_id) is not topic:
                    self._ended(topic.topic_id)
                    return
                if await self._try_all(topic, pending[begin : begin + AT_ONCE * MAX_MOVES]):
                    backoff_s = MIN_BACKOFF_S
                    continue
                await self._logs.clock.sleep(backoff_s)
                backoff_s = min(MAX_BACKOFF_S, backoff_s * 2)
        # Without a wait after nothing was found to move, so that a later job starts another task.
        self._ended(topic.topic_id)

    async def _try_all(self, topic: Topic, seqs: list[int]) -> bool:
        """Take these moves as far as possible. False if one was refused."""
        left, refused = seqs, list[tuple[int, BaseException]]()
        if len(seqs) > 1:
            left = (await self.move_many(topic, seqs)).remaining
        for begin in range(0, len(left), SIDE_BY_SIDE):
            tried = left[begin : begin + SIDE_BY_SIDE]
            outcomes = await asyncio.gather(*(self.move(topic, seq) for seq in tried), return_exceptions=True)
            refused += [each for each in zip(tried, outcomes, strict=True) if isinstance(each[1], BaseException)]
        if not refused:
            return True
        seq, error = refused[0]
        if isinstance(error, StorageError):
            _log.warning("move_refused", topic=topic.name, seq=seq, moves=len(refused), error=str(error))
        else:
            _log.error("move_failed", topic=topic.name, seq=seq, moves=len(refused), exc_info=error)
        return False

    async def move_many(self, topic: Topic, seqs: list[int]) -> MovedJobs:
        """Move many at once. Nobody else moves the same records meanwhile. Cancelling the caller does not stop the
        moves. Does not raise: moves that failed are returned, and each continues later from where it is."""
        if len(seqs) > MAX_MOVES:
            parts = [seqs[begin : begin + MAX_MOVES] for begin in range(0, len(seqs), MAX_MOVES)]
            outcomes = await asyncio.gather(*(self.move_many(topic, part) for part in parts))
            return MovedJobs(
                [seq for each in outcomes for seq in each.moved], [seq for each in outcomes for seq in each.remaining]
            )
        mine = [seq for seq in seqs if (topic.topic_id, seq) not in self._under_way]
        done = self._logs.runtime.loop.create_future()
        self._under_way.update(dict.fromkeys(zip(repeat(topic.topic_id), mine), done))
        working = self._logs.runtime.loop.create_task(self._move_many(topic, mine), name="storage-moves")
        self._working.add(working)

        def ended(task: asyncio.Task[list[int]]) -> None:
            self._working.discard(task)
            for seq in mine:
                del self._under_way[topic.topic_id, seq]
            done.set_result(None)

        working.add_done_callback(ended)
        moved = await asyncio.shield(working)
        gone = frozenset(moved)
        return MovedJobs(moved, [seq for seq in seqs if seq not in gone])

    async def _move_many(self, topic: Topic, seqs: list[int]) -> list[int]:
        moved: list[int] = []
        try:
            await self._open_moves(topic, seqs)
            while step := await self._copy_many(topic, [*filter(topic.log.moves.out.__contains__, seqs)]):
                dest, copied, error = step
                if copied:
                    await self._finish(topic, copied, dest)
                    moved += copied
                if error is not None:
                    raise error
                if not copied:
                    break  # the target was deleted just now
        except StorageError:
            pass  # possibly an error of one of them; the single try reports it
        except Exception:
            _log.exception("move_failed", topic=topic.name, seq=seqs[0], moves=len(seqs) - len(moved))
        return moved

    async def _open_moves(self, topic: Topic, seqs: Sequence[int]) -> None:
        """Step 1 for dead jobs that have no open move."""
        table = topic.log.queue
        if table is None or all(map(topic.log.moves.out.__contains__, seqs)):
            return
        dest = await self.dead_letter_topic(topic)
        while (changing := self._logs.changing.get(topic.topic_id)) is not None:
            await asyncio.wait([changing])
        entries: dict[str | None, list[LeaseEntry]] = {}
        for seq in seqs:
            job = table.jobs.get(seq)
            if job is not None and job.state == DEAD and seq not in topic.log.moves.out:
                entries.setdefault(job.reason, []).append(job.entry())
        if dest is not None and entries:
            leases = [
                Lease(event="dead", jobs=jobs, dest_id=dest.topic_id, reason=reason) for reason, jobs in entries.items()
            ]
            await self._shared.commit(topic, leases, sync=True)

    async def _copy_many(
        self, topic: Topic, seqs: Sequence[int]
    ) -> tuple[Target, list[int], BaseException | None] | None:
        """Step 2 for moves to one topic, for as many bytes as one read returns. Returns the target, which copies are
        there, and the error of the others. None if nothing can be done for several at once."""
        self._check_there(topic)
        open_moves = topic.log.moves.out
        live = topic.log.live_of(seqs)
        dest = await self.targets.find(open_moves[live[0]].dest_id) if live else None
        if dest is None:
            return None
        wanted = [seq for seq in live if seq in open_moves and open_moves[seq].dest_id == dest.topic_id]
        came = await dest.came(topic, wanted)
        if came is None:
            return None
        if came:
            return dest, sorted(came), None
        wanted = [*filter(open_moves.__contains__, wanted)]
        if topic.config.dead_letter != dest.name:
            wanted = [seq for seq in wanted if self._wanted(topic, dest, open_moves[seq])]
        found = (await job_records.read(self._shared.reader, topic, wanted, sized=False)).records if wanted else {}
        records = [record for record in found.values() if record.seq in open_moves]
        if not records:
            return None
        # A batch has one node. All batches are enqueued in order without a wait in between, and share a sync.
        groups = [[*group] for _, group in groupby(records, _node_of)]
        outcomes = await asyncio.gather(
            *(self._copy_group(topic, each, dest) for each in groups), return_exceptions=True
        )
        if not dest.exists:
            return None
        errors = [each for each in outcomes if isinstance(each, BaseException)]
        copied = [seq for each in outcomes if not isinstance(each, BaseException) for seq in each]
        return dest, copied, errors[0] if errors else None

    async def _copy_group(self, topic: Topic, records: list[StoredRecord], dest: Target) -> list[int]:
        """Their seqs, once the copies are durable. None if the target is gone."""
        moves = [topic.log.moves.out[record.seq] for record in records]
        seqs = [record.seq for record in records]
        what = "dead_letter" if moves[0].deliveries else "redrive"
        with moving(self._tracer(), what, topic.name, dest.name, records):
            there = await dest.write(topic, seqs, copies_of(records, topic.name, moves), records[0].node)
        return seqs if there else []

    async def move(self, topic: Topic, seq: int) -> bool:
        """Take one step after the other until the record is gone from its source. Raises StorageError if a step is
        refused.

        False if the move was called off, or there is nothing to move any more.

        Only one caller may run a move: two callers that both find no copy would write two.
        """
        key = (topic.topic_id, seq)
        while (other := self._under_way.get(key)) is not None:
            await asyncio.wait([other])
        done = self._under_way[key] = self._logs.runtime.loop.create_future()
        # It continues when its caller is gone: until its copy is written, nobody else may look for one.
        working = self._logs.runtime.loop.create_task(self._move(topic, seq), name="storage-move")
        self._working.add(working)

        def ended(task: asyncio.Task[bool]) -> None:
            self._working.discard(task)
            del self._under_way[key]
            done.set_result(None)
            if not task.cancelled():
                task.exception()  # retrieve it: the caller may have gone

        working.add_done_callback(ended)
        return await asyncio.shield(working)

    async def _move(self, topic: Topic, seq: int) -> bool:
        self._check_there(topic)
        log = topic.log
        if seq not in log.moves.out and not await self._open(topic, seq):
            return not log.is_live(seq)  # another caller may have been first
        move = log.moves.out.get(seq)
        if move is None:
            return False
        if not log.is_live(seq):  # lost or deleted meanwhile, and announced: at most the copy remains
            log.moves.out.pop(seq, None)
            log.section = None
            return False
        dest = await self.targets.find(move.dest_id)
        came = None if dest is None else await dest.came(topic, [seq])
        if dest is None or came is None:  # deleted, and the copy with it if there was one
            await self._call_off(topic, seq, move)
            return False
        if not came and not self._wanted(topic, dest, move):
            await self._call_off(topic, seq, move)
            return False
        if not came and not await self._copy(topic, seq, move, dest):
            return False
        await self._finish(topic, [seq], dest)
        return True

    def _check_there(self, topic: Topic) -> None:
        """Raises TopicNotFound for a deleted topic: its moves ended with it, even if they are still listed."""
        if self._logs.catalog.by_id.get(topic.topic_id) is not topic:
            raise TopicNotFound(topic.name)

    @staticmethod
    def _wanted(topic: Topic, dest: Target, move: Move) -> bool:
        """Whether the record still goes to this target: a dead job goes where the settings say now."""
        return not move.deliveries or topic.config.dead_letter == dest.name

    async def _open(self, topic: Topic, seq: int) -> bool:
        """Step 1 for a dead job. False if it is no longer dead."""
        table = topic.log.queue
        job = table.jobs.get(seq) if table is not None else None
        if table is None or job is None or job.state != DEAD:
            return False
        dest = await self.dead_letter_topic(topic)
        while (changing := self._logs.changing.get(topic.topic_id)) is not None:
            await asyncio.wait([changing])  # new limits may revive the job: wait for them before deciding
        if dest is None or table.jobs.get(seq) is not job or job.state != DEAD:
            table.review(limits_of(topic.config))
            return False
        value = Lease(event="dead", jobs=[job.entry()], dest_id=dest.topic_id, reason=job.reason)
        await self._shared.commit(topic, [value], sync=True)
        return True

    async def dead_letter_topic(self, topic: Topic) -> Target | None:
        """The dead letter topic of this queue, created if missing. None if the queue has none."""
        name = topic.config.dead_letter
        return None if name is None else await self.targets.named(name, TopicConfig(durability=topic.config.durability))

    async def _call_off(self, topic: Topic, seq: int, move: Move) -> None:
        table = topic.log.queue
        job = table.jobs.get(seq) if table is not None else None
        forgiven = job.forgiven if job is not None else 0
        value = Lease(event="released", jobs=[(seq, 0, 0, move.deliveries, 0, forgiven)], reason=move.reason)
        await self._shared.commit(topic, [value])

    async def call_off(self, topic: Topic, seqs: list[int]) -> None:
        """Cancel those of these open moves whose copies do not exist."""
        for seq in seqs:
            move = topic.log.moves.out.get(seq)
            if move is None:
                continue
            try:
                dest = await self.targets.find(move.dest_id)
                came = None if dest is None else await dest.came(topic, [seq])
            except StorageError:
                continue  # it cannot be known now: the move continues later
            if not came and topic.log.moves.out.get(seq) is move:
                await self._call_off(topic, seq, move)

    async def _copy(self, topic: Topic, seq: int, move: Move, dest: Target) -> bool:
        """Step 2. False if there is nothing to copy, because the record or the target was lost or deleted just now."""
        found = await job_records.read(self._shared.reader, topic, [seq])
        record = found.records.get(seq)
        if record is None:
            if found.corrupt:
                raise job_records.corrupt(topic.name, seq)
            if seq in found.unreadable:
                raise found.unreadable[seq]
            # If a record cannot be read, it is gone, or it must not be deleted as if it had been copied.
            if topic.log.is_live(seq):
                raise StorageError(f"Record {seq} of {topic.name} cannot be read now.")
            return False
        if topic.log.moves.out.get(seq) is not move:
            return False
        return bool(await self._copy_group(topic, [record], dest))

    async def _finish(self, topic: Topic, seqs: list[int], dest: Target) -> None:
        """Step 3. After it the target may forget the move."""
        log = topic.log
        request = control.Delete(bound_head=log.head, seqs=seqs, ack=True)
        await self._shared.topics.delete_jobs(topic, request, None, sync=True)
        await dest.finished(topic, seqs)
        self._check_there(topic)
        self._shared.stats.moved += len(seqs)
