"""Making, changing and deleting topics, and deleting records.

While a topic is being changed or deleted, writes to it wait, so that none falls between two configs.

Source: docs/reference/api.md#topics, docs/reference/guarantees.md#durability-classes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec
import structlog

from storage.config import Durability, TopicConfig
from storage.errors import (
    InvalidRequest,
    LimitReached,
    StorageError,
    TopicIncompatible,
    TopicNotEmpty,
    TopicNotFound,
)
from storage.format import control
from storage.log.admission import eviction, over_caps
from storage.log.encode import EncodedUnit, encode_controls
from storage.log.pending_losses import announce_losses
from storage.log.submission import ControlStep, PersistStep, Unit
from storage.log.validation import check_cleanup, check_topic_name
from storage.records.values import DeletedRecords, TagMatch
from storage.segments.io import SegmentGone, look_into
from storage.state.catalog import Topic, leases_durable
from storage.state.log import Log
from storage.state.lookup import Found, LookedUp, look_up, plan, tag_predicate
from storage.state.partition_rules import check_partitions
from storage.state.partition_sets import creation
from storage.state.queues.frames import lease_frames
from storage.state.retained import Eviction
from storage.topics.growth import Growth

if TYPE_CHECKING:
    from storage.engine import Engine

_log = structlog.get_logger("storage")

Result = TypeVar("Result")


class TopicAdmin:
    """Operations on whole topics."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.growth = Growth(engine)

    # -- making ------------------------------------------------------------------------------------------------------

    def check_limit(self) -> None:
        """Raises LimitReached when no further topic may be made."""
        limit = self._engine.options.max_topics
        if limit and self._engine.catalog.size >= limit:
            raise LimitReached(f"There are {limit} topics, which is the limit.", limit="max_topics", max=limit)

    def provisional(self, name: str, config: TopicConfig) -> tuple[Topic, control.TopicCreate]:
        """A topic that exists for writers from now on and for readers once its TopicCreate is committed."""
        engine = self._engine
        topic_id = engine.catalog.claim_topic_id(engine.shard_is_open)
        value = creation(name, topic_id, 0, config.partitions, topic_id, config.to_map())
        topic = engine.catalog.add(topic_id, value)
        topic.provisional = True
        return topic, value

    async def put(self, name: str, config: TopicConfig, *, keep_partitions: bool = False) -> bool:
        """Make the topic, or replace its config; True when made. Durable on return.

        `keep_partitions`: of a topic that is there, their number stays, whatever `config` says.
        """
        check_topic_name(name)
        config = config.clamped()
        check_cleanup(config)
        while True:
            topic = self._engine.catalog.topics.get(name)
            if topic is None:
                check_partitions(self._engine.catalog, self._engine.options, name, config, None)
                if await self._create(name, config):
                    return True
                continue
            changing = self._engine.changing.get(topic.topic_id)
            if changing is None:
                break
            await asyncio.wait([changing])
        if topic.config.type is not config.type:
            raise TopicIncompatible(f"{name} is a {topic.config.type}; its type cannot be changed.", field="type")
        if keep_partitions:
            config = msgspec.structs.replace(config, partitions=topic.config.partitions)
        check_partitions(self._engine.catalog, self._engine.options, name, config, topic)
        if any(self._differs(each, config) for each in (topic, *topic.others)):
            await self._exclusively((topic, *topic.others), self.growth.change(topic, config))
        return False

    async def alter(self, name: str, changed: Callable[[TopicConfig], TopicConfig]) -> None:
        """Give a topic the config that `changed` makes of the one it has; durable on return.

        No other change comes between looking and writing, and a topic that is being deleted is not made again. Raises
        TopicNotFound, and as `changed` and `put`.
        """
        while True:
            topic = self._engine.topic(name)
            changing = self._engine.changing.get(topic.topic_id)
            if changing is None:
                await self.put(name, changed(topic.config))  # which does not wait before it holds back other changes
                return
            await asyncio.wait([changing])

    def _differs(self, topic: Topic, config: TopicConfig) -> bool:
        # Of a stopped shard nobody knows what the next start will find: perhaps a change that is not seen here.
        stopped = self._engine.shards[topic.log.shard].log.failed is not None
        return topic.config != config or topic.provisional or stopped

    async def _create(self, name: str, config: TopicConfig) -> bool:
        """False: something has come between, and nothing was made."""
        engine = self._engine
        self.check_limit()
        topic, creating = self.provisional(name, config)
        shard = engine.shards[topic.log.shard]
        try:
            shard.refuse_when_full()
        except Exception:
            engine.catalog.remove(topic)
            raise
        if config.partitions > 1:
            return await self._exclusively((topic,), self.growth.create(topic, creating))
        await asyncio.shield(self.submit_creation(topic, creating))
        return True

    def submit_creation(self, topic: Topic, creating: control.TopicCreate) -> asyncio.Future[int | None]:
        """The frame that makes partition 0."""
        engine = self._engine
        values: list[control.Control] = [creating]
        if (reserve := engine.reservations.first(topic, 0)) is not None:
            values.append(reserve)
        encoded = encode_controls(values, topic.topic_id, engine.now_ms())
        return engine.submit_controls(topic.log, encoded, generation=engine.shards[topic.log.shard].generation)

    async def _exclusively(self, topics: Sequence[Topic], work: Coroutine[None, None, Result]) -> Result:
        """Run a change with all writes to the topic held back. It goes on when its caller goes away."""
        task = asyncio.ensure_future(work)
        changing = self._engine.changing
        ids = [topic.topic_id for topic in topics]
        for each in ids:
            changing[each] = task

        def on_done(_: object) -> None:
            for each in ids:
                changing.pop(each, None)
                self._engine.queues.on_changed(each)

        task.add_done_callback(on_done)
        return await asyncio.shield(task)

    async def align_all(self) -> None:
        """Bring partitions whose settings a crash or a full disk has kept as they were to those of partition 0.

        Where there is no room for that it is tried again, where the shard has stopped the next start does it.
        """
        for name in sorted(self._engine.catalog.partitioned):
            try:
                await self.align(name)
            except StorageError as error:
                _log.warning("partitions_not_aligned", topic=name, error=str(error))

    async def align(self, name: str) -> None:
        """Give all partitions the settings that partition 0 has, where they differ. Raises Unavailable."""
        topic = self._engine.topic(name)
        behind = [each for each in topic.others if each.config != topic.config]
        if behind and topic.topic_id not in self._engine.changing:
            await self._exclusively((topic, *topic.others), self.growth.follow(behind, topic.config))

    async def change(self, topic: Topic, config: TopicConfig, *, paused: bool | None = None) -> None:
        """The settings of one partition; durable on return. Nobody writes to it meanwhile."""
        engine, log = self._engine, topic.log
        shard = engine.shards[log.shard]
        shard.refuse_when_full()
        await engine.consumers.check_change(topic, config)
        if log.topic_id in engine.pending_losses:
            await announce_losses(engine, log)
        leases = await self._leases_to_write(topic, config)
        if topic.config.ttl_ms and topic.config.ttl_ms != config.ttl_ms:
            # By the old ttl, and in the log in front of the new one: nobody was given it any more, and nobody will be.
            await engine.expiry.expire_if_possible(topic)
        pending: list[asyncio.Future[int | None]] = []
        if log.ephemeral and config.durability is not Durability.EPHEMERAL:
            pending = self._write_out(log)
        values: list[control.Control] = [
            control.ConfigUpdate(
                name=topic.title,
                topic=topic.root_id,
                partition=topic.partition,
                partitions=config.partitions,
                epoch=log.epoch,
                config=config.to_map(),
                paused=paused,
            ),
            *(value for value, _ in leases),
        ]
        nodes = ["", *(node for _, node in leases)]
        while (over := over_caps(config, log, 0, 0)) is not None:  # what has gone meanwhile makes room as well
            planned = log.plan_eviction(*over)
            if isinstance(planned, Eviction):
                values.append(eviction(config, log, planned))
                nodes.append("")
                break
            await engine.segments.load_to_evict(log, planned)
        before, after = topic.config.durability, config.durability
        if before is not after and (before is Durability.FSYNC or after is Durability.EPHEMERAL):
            # Nothing beyond the head was handed out. Of the class that it had a start would know; of the new one it
            # could not, and would announce a loss.
            values.append(control.HeadWatermark(reserved=log.assigned_head))
            nodes.append("")
        if log.ephemeral:
            cursors = self._cursors(topic)
            values += cursors
            nodes += [""] * len(cursors)
        encoded = encode_controls(values, topic.topic_id, engine.now_ms(), nodes=nodes)
        pending.append(engine.submit_controls(log, encoded, generation=shard.generation))
        await asyncio.gather(*pending)
        await engine.expiry.expire_if_possible(topic)  # the config is changed, whatever comes of this

    def _cursors(self, topic: Topic) -> list[control.RouterCursor]:
        """Of routers into a topic that was in memory only: from here on the log says how far they have come."""
        return [
            control.RouterCursor(router_id=router.router_id, source_seq=router.cursor)
            for router in self._engine.catalog.routes.into.get(topic.topic_id, ())
        ]

    async def _leases_to_write(self, topic: Topic, config: TopicConfig) -> list[tuple[control.Lease, str]]:
        """Leases that were in memory only and are to be durable from now on: all that is known of jobs."""
        table = topic.log.queue
        if table is None or topic.leases_durable or not leases_durable(config):
            return []
        await self._engine.queues.quiet(topic)
        return lease_frames(table)

    def _write_out(self, log: Log) -> list[asyncio.Future[int | None]]:
        """An ephemeral log becomes durable: what memory holds goes to the WAL, ahead of the config that says so."""
        engine = self._engine
        generation = engine.shards[log.shard].generation

        def submit(encoded: EncodedUnit) -> asyncio.Future[int | None]:
            return engine.submit_controls(log, encoded, generation=generation)

        now = engine.now_ms()
        pending: list[asyncio.Future[int | None]] = []
        if log.marks.floors or log.marks.loss:
            marks = control.EvictWatermark(floors=dict(log.marks.floors), loss=list(log.marks.loss))
            pending.append(submit(encode_controls([marks], log.topic_id, now)))
        for first_seq, (payload, offset) in log.cached.items():
            if first_seq > log.durable_head:
                unit = Unit(None, [PersistStep(log.topic_id, first_seq, offset)])
                pending.append(submit(EncodedUnit(unit, payload, 1)))
        gone: list[control.Control] = []
        if log.tail.dead is not None:
            gone.append(control.Delete(bound_head=log.head, seqs=log.tail.dead_seqs()))
        if (earliest := log.earliest_seq) > log.marks.live_floor:
            # The newest batch was written, so that its seqs count as used, also when the index knows it no more.
            gone.append(control.Delete(bound_head=log.head, before_seq=earliest))
        pending += [submit(encode_controls([each], log.topic_id, now)) for each in gone]
        return pending

    # -- deleting ----------------------------------------------------------------------------------------------------

    async def delete(self, name: str, *, if_empty: bool) -> list[str] | None:
        """Delete the topic and everything in it; names of the routers that went with it, None when there is no topic.

        Durable on return.
        """
        check_topic_name(name)
        if if_empty and (found := self._engine.catalog.topics.get(name)) is not None:
            await self._engine.expiry.let_expire((found,))  # it holds nothing that a read would give
        while True:
            topic = self._engine.catalog.topics.get(name)
            if topic is None:
                return None
            changing = self._engine.changing.get(topic.topic_id)
            if changing is None:
                break
            await asyncio.wait([changing])
        parts = list(self._engine.catalog.parts.get(topic.topic_id, {}).values())
        held = topic.log.assigned_count + sum(part.log.assigned_count for part in parts)
        if if_empty and held:
            raise TopicNotEmpty(f"{name} still holds {held} records.", count=held)
        await self._exclusively((topic, *parts), self.growth.delete_all(self.growth.delete(topic), parts))
        for each in (topic, *parts):
            self._engine.reservations.forget(each.topic_id)
        return sorted(router.name for router in topic.routers_removed)

    async def _wait_unchanged(self, name: str) -> Topic:
        """The topic, when it is not being changed and its log's queue has room. Raises TopicNotFound, WalSaturated."""
        while True:
            topic = self._engine.topic(name)
            shard = self._engine.shards[topic.log.shard]
            if (changing := self._engine.changing.get(topic.topic_id)) is not None:
                # What is being written out of memory is decided: a delete that came between would be forgotten.
                await asyncio.wait([changing])
            elif topic.log.in_memory_only or shard.has_room(1, 0):
                return topic
            else:
                await shard.wait_room(1, 0)

    async def _looked_up(self, log: Log, value: control.Delete, encoded: EncodedUnit) -> EncodedUnit:
        """The unit, with what its Delete wants of the segments: found now, off the loop."""
        engine, held, last = self._engine, log.held, log.delete_end(value)
        if value.match is None and value.seqs is None:
            floor = log.marks.live_floor
            while (segment := held.wants(floor, last + 1, floor)) is not None:
                await engine.segments.load(log, segment)
                floor = log.marks.live_floor
            return encoded
        while True:
            found = Found(held.flushed, [], [])
            gone = False
            for wanted in plan(held, value, log.marks.live_floor, last):
                try:
                    job = partial(look_up, engine.store, log.topic_id, wanted, 0, last)
                    seqs, sizes = await look_into(engine.logs, log, wanted.segment, job)
                except SegmentGone:
                    gone = True  # dropped or rewritten just now: from the beginning
                    break
                found.seqs.extend(seqs)
                found.sizes.extend(sizes)
            if found.flushed == held.flushed and not gone:
                break
        return _knowing(encoded, LookedUp(value, found))

    async def delete_jobs(self, topic: Topic, request: control.Delete, known: LookedUp | None, *, sync: bool) -> None:
        """Carry out a Delete{seqs}; as durable on return as the topic, or synced.

        `known`: the same Delete, with what it wants of segments. Raises Unavailable.
        """
        engine, log = self._engine, topic.log
        if log.in_memory_only:
            await engine.queues.commit(topic, [request])
            return
        encoded, needs_sync = self.deletion(topic, request, known, engine.now_ms(), sync=sync)
        if known is None and request.seqs and min(request.seqs) <= log.held.flushed:
            encoded = await self._looked_up(log, request, encoded)
        shard = engine.shards[log.shard]
        while not shard.has_room(encoded.frames, len(encoded.payload), internal=True):
            await shard.wait_room(encoded.frames, len(encoded.payload))
        if engine.catalog.by_id.get(topic.topic_id) is not topic:
            raise TopicNotFound(topic.name)
        await asyncio.shield(engine.submit_controls(log, encoded, frees=True, needs_sync=needs_sync))

    def deletion(
        self,
        topic: Topic,
        request: control.Delete,
        known: LookedUp | None,
        now_ms: int,
        *,
        sync: bool = False,
    ) -> tuple[EncodedUnit, bool]:
        """The unit of a Delete{seqs}, and whether it is to be synced."""
        needs_sync = sync or topic.config.durability is Durability.FSYNC
        encoded = encode_controls([request], topic.topic_id, now_ms, durable=needs_sync)
        return encoded if known is None else _knowing(encoded, known), needs_sync

    async def set_paused(self, topic: Topic, paused: bool) -> None:
        """A queue hands out nothing while it is paused. Durable on return."""
        # Of a stopped shard nobody knows what the next start will find: perhaps a change that is not seen here.
        if topic.paused != paused or self._engine.shards[topic.log.shard].log.failed is not None:
            await self._exclusively((topic,), self.change(topic, topic.config, paused=paused))

    async def delete_records(self, name: str, before_seq: int | None, match: TagMatch | None) -> DeletedRecords:
        """Remove records for good and silently; as durable on return as the topic is."""
        if before_seq is None and match is None:
            raise InvalidRequest("Give before_seq or match.", field="before_seq")
        engine = self._engine
        topic = await self._wait_unchanged(name)
        log = topic.log
        value = control.Delete(
            bound_head=log.head, before_seq=before_seq, match=None if match is None else tag_predicate(match)
        )
        if log.in_memory_only:
            deleted = log.delete(value)
        else:
            needs_sync = topic.config.durability is Durability.FSYNC
            encoded = encode_controls([value], log.topic_id, engine.now_ms(), durable=needs_sync)
            encoded = await self._looked_up(log, value, encoded)
            done = engine.submit_controls(log, encoded, frees=True, needs_sync=needs_sync)
            deleted = await asyncio.shield(done) or 0
        return DeletedRecords(
            topic=name,
            deleted=deleted,
            earliest_seq=log.earliest_seq,
            head_seq=log.head,
            count=log.count,
            bytes=log.bytes,
        )


def _knowing(encoded: EncodedUnit, known: LookedUp) -> EncodedUnit:
    """The unit with what its Delete, the first of its frames, wants of segments."""
    step, *others = encoded.unit.steps
    assert isinstance(step, ControlStep)
    knowing = ControlStep(step.type, step.topic_id, step.ts, known, step.node)
    return EncodedUnit(Unit(encoded.unit.batch, [knowing, *others]), encoded.payload, encoded.frames)
