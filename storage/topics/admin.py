"""Creates, changes and deletes topics and their partitions, and deletes records.

While a topic is being changed or deleted, writes to it wait, so that no write is checked against two configs.

New partitions are created before the frame of partition 0 that counts them (its TopicCreate, or its
ConfigUpdate{partitions}): their TopicCreates are synced first. Until then they cannot be found, so no record is written
to a partition that a crash would undo.

Source: docs/reference/api.md#topics, docs/reference/api.md#partitions, docs/reference/guarantees.md#recovery,
docs/reference/guarantees.md#durability-classes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Protocol, TypeVar

import msgspec
import structlog

from storage.errors import (
    InvalidRequest,
    LimitReached,
    StorageError,
    StorageFailed,
    TopicIncompatible,
    TopicNotEmpty,
    TopicNotFound,
)
from storage.format import control
from storage.log import (
    EncodedUnit,
    Logs,
    PersistStep,
    Reservations,
    Unit,
    check_cleanup,
    check_topic_name,
    encode_controls,
    eviction,
    over_caps,
)
from storage.records import DeletedRecords, Durability, TagMatch, TopicConfig
from storage.segments import DetailsCache, SegmentGone, run_segment_job
from storage.state import (
    CELLS,
    SPREAD,
    Eviction,
    FoundRecords,
    Log,
    LookedUp,
    Placement,
    Topic,
    check_partitions,
    creation,
    encode_placement,
    leases_durable,
    look_up,
    plan,
    tag_predicate,
)
from storage.state.queues import lease_frames
from storage.topics.expiry import Expiry
from storage.topics.placements import Placements

_log = structlog.get_logger("storage")

Result = TypeVar("Result")


class TopicQueues(Protocol):
    """The queues of topics, as changes of topics need them: `storage.queues.queues`."""

    def on_changed(self, topic_id: int) -> None:
        """A change of the topic has ended."""
        ...

    async def wait_decided(self, topic: Topic) -> None:
        """Wait until every decision about the queue's jobs has been written to the log."""
        ...

    async def commit(self, topic: Topic, values: Sequence[control.Control]) -> None:
        """Apply control frames of a queue: through its log, or at once when it is ephemeral."""
        ...


class TopicConsumers(Protocol):
    """The consumers of topics: `storage.consumers.consumers`."""

    async def check_change(self, topic: Topic, config: TopicConfig) -> None:
        """Raises TopicIncompatible when the consumers of the topic forbid the change."""
        ...


class TopicAdmin:
    """Operations on whole topics. All methods belong to the engine's loop."""

    #: Both are made of this object, so the engine sets them after it.
    queues: TopicQueues
    consumers: TopicConsumers

    def __init__(
        self, logs: Logs, reservations: Reservations, expiry: Expiry, details: DetailsCache, placements: Placements
    ) -> None:
        self._logs = logs
        self.placements = placements
        self._reservations = reservations
        self._expiry = expiry
        self._details = details
        #: Raises NotMine for the name of a topic that another cell of the set decides about.
        self.check_home: Callable[[str], None] = lambda name: None
        #: Raises for a topic that routers of other cells copy from or to; see `Routers.check_ends`.
        self.check_ends: Callable[[str, bool], Awaitable[None]] = _no_ends
        #: The same for dead letter topics: of a topic that is one, and of a name (and the field that has it) that is to
        #: be one. See `storage.queues.dead_letter_rules`.
        self.check_takes_none: Callable[[str], Awaitable[None]] = _nothing
        self.check_takes: Callable[[str, str], Awaitable[None]] = _nothing

    # -- creating ----------------------------------------------------------------------------------------------------

    def check_limit(self) -> None:
        """Raises LimitReached when no further topic may be made."""
        limit = self._logs.options.max_topics
        if limit and self._logs.catalog.size >= limit:
            raise LimitReached(f"There are {limit} topics, which is the limit.", limit="max_topics", max=limit)

    def provisional(self, name: str, config: TopicConfig) -> tuple[Topic, control.TopicCreate]:
        """A topic that exists for writers from now on and for readers once its TopicCreate is committed."""
        self.check_home(name)
        catalog = self._logs.catalog
        topic_id = catalog.claim_topic_id(self._logs.shard_is_open)
        value = creation(name, topic_id, 0, config.partitions, topic_id, config.to_map())
        topic = catalog.add(topic_id, value)
        topic.provisional = True
        return topic, value

    async def put(self, name: str, config: TopicConfig, *, keep_partitions: bool = False) -> bool:
        """Create the topic or replace its config; True when created. Durable on return.

        `keep_partitions`: an existing topic keeps its number of partitions, whatever `config` says.
        """
        check_topic_name(name)

        def wanted(topic: Topic | None) -> TopicConfig:
            if keep_partitions and topic is not None:
                return msgspec.structs.replace(config, partitions=topic.config.partitions)
            return config

        return await self._put(name, wanted)

    async def _put(self, name: str, wanted: Callable[[Topic | None], TopicConfig]) -> bool:
        """`wanted` returns the new config of the topic as it is now. Nothing else changes it between that call and the
        change: after a wait, `wanted` is called again."""
        catalog, asked = self._logs.catalog, (False, None)
        while True:
            topic = catalog.topics.get(name)
            changing = None if topic is None else self._logs.changing.get(topic.topic_id)
            if changing is not None:
                await asyncio.wait([changing])
                continue
            config = wanted(topic).clamped()
            check_cleanup(config)
            if topic is not None and topic.config.type is not config.type:
                raise TopicIncompatible(f"{name} is a {topic.config.type}; its type cannot be changed.", field="type")
            check_partitions(catalog, self._logs.options, name, config, topic)
            if (question := self._question(config, topic)) != asked:
                await self._ask_elsewhere(name, *question, is_new=topic is None)
                asked = question
            elif topic is not None:
                break
            elif await self._create(name, config):
                return True
        if any(self._differs(each, config) for each in (topic, *topic.others)):
            await self.exclusively((topic, *topic.others), self._change_all(topic, config))
        return False

    @staticmethod
    def _question(config: TopicConfig, topic: Topic | None) -> tuple[bool, str | None]:
        """What other cells have to be asked before a topic has this config: whether it gets several partitions, and its
        new dead letter topic."""
        before = None if topic is None else topic.config
        dead_letter = None if before is not None and before.dead_letter == config.dead_letter else config.dead_letter
        return config.partitions > 1 and (before is None or before.partitions == 1), dead_letter

    async def _ask_elsewhere(self, name: str, grows: bool, dead_letter: str | None, *, is_new: bool) -> None:
        if grows:
            if not is_new:  # routers end with their topic
                await self.check_ends(name, True)
            await self.check_takes_none(name)
        if dead_letter is not None:
            await self.check_takes(dead_letter, "dead_letter")

    async def alter(self, name: str, changed: Callable[[TopicConfig], TopicConfig]) -> None:
        """Replace the config of a topic by the result of `changed`; durable on return.

        No other change comes between reading and writing the config, and a topic that is being deleted is not created
        again. Raises TopicNotFound, and the errors of `changed` and `put`.
        """
        self._logs.topic(name)
        await self._put(name, lambda _: changed(self._logs.topic(name).config))

    def _differs(self, topic: Topic, config: TopicConfig) -> bool:
        # The next start may find a change in a stopped shard that is not visible here.
        stopped = self._logs.shards[topic.log.shard].log.failed is not None
        return topic.config != config or topic.provisional or stopped

    async def _create(self, name: str, config: TopicConfig) -> bool:
        """False: another operation came first, and nothing was created."""
        logs = self._logs
        self.check_limit()
        topic, creating = self.provisional(name, config)
        try:
            logs.shards[topic.log.shard].refuse_when_full()
        except Exception:
            logs.catalog.remove(topic)
            raise
        if config.partitions > 1:
            return await self.exclusively((topic,), self._create_all(topic, creating))
        await asyncio.shield(self.submit_creation(topic, creating))
        return True

    def submit_creation(
        self, topic: Topic, creating: control.TopicCreate, placement: Placement | None = None
    ) -> asyncio.Future[int | None]:
        """The frames that create one partition. `placement`: for partition 0, if others are in other cells."""
        logs = self._logs
        values: list[control.Control] = [creating, *_placement_frames(placement)]
        if (reserve := self._reservations.first(topic, 0)) is not None:
            values.append(reserve)
        encoded = encode_controls(values, topic.topic_id, logs.now_ms())
        return logs.submit_controls(topic.log, encoded, generation=logs.shards[topic.log.shard].generation)

    # -- several partitions ------------------------------------------------------------------------------------------

    async def _create_partitions(
        self, root: Topic, config: TopicConfig, first: int, placement: Placement | None
    ) -> list[Topic]:
        """Create the partitions from `first` on that `config` requires. Durable on return, but not found by their
        addresses yet. Returns those in this cell.

        Raises Unavailable; then none exist, or the ones in other cells are deleted when those cells are notified.
        """
        logs = self._logs
        made: list[Topic] = []
        pending: list[asyncio.Future[int | None]] = []
        try:
            for partition in self._here(placement, range(first, config.partitions)):
                topic_id = logs.catalog.claim_topic_id(logs.shard_is_open)
                value = creation(root.title, root.topic_id, partition, config.partitions, topic_id, config.to_map())
                topic = logs.catalog.add(topic_id, value)
                topic.provisional = True
                made.append(topic)
                logs.shards[topic.log.shard].refuse_when_full()
                pending.append(self.submit_creation(topic, value))
            if placement is not None:
                await self.placements.make(root, config, placement)
            await asyncio.gather(*pending)
        except StorageError:
            await asyncio.gather(*pending, return_exceptions=True)
            await self.discard(made)
            raise
        return made

    def _here(self, placement: Placement | None, partitions: Iterable[int]) -> list[int]:
        """Those of these partitions that are in this cell."""
        cell = self._logs.catalog.cell
        return [each for each in partitions if placement is None or placement.cells[each] == cell]

    async def _create_all(self, topic: Topic, creating: control.TopicCreate) -> bool:
        """Create all partitions of a topic whose partition 0 is provisional. False: partition 0 is gone, and nothing
        was created."""
        placement = self.placements.placement_for(topic, topic.config)
        try:
            async with self.placements.changing(topic, placement):
                return await self._create_at(topic, creating, placement)
        except StorageError:
            if topic.provisional:
                self._forget_unmade(topic)
            raise

    async def _create_at(self, topic: Topic, creating: control.TopicCreate, placement: Placement | None) -> bool:
        logs = self._logs
        made: list[Topic] = []
        try:
            made = await self._create_partitions(topic, topic.config, 1, placement)
            if logs.catalog.by_id.get(topic.topic_id) is not topic:
                await self.discard(made)  # its shard failed or filled up meanwhile
                return False
            await self.submit_creation(topic, creating, placement)
        except StorageFailed:
            self._forget_unmade(topic)
            raise  # partition 0 may be in the log: only the next start knows whether the others count
        except StorageError:
            self._forget_unmade(topic)
            await self.discard(made)
            raise
        return True

    def _forget_unmade(self, topic: Topic) -> None:
        if self._logs.catalog.by_id.get(topic.topic_id) is topic:
            self._logs.catalog.remove(topic)

    async def _change_all(self, topic: Topic, config: TopicConfig) -> None:
        """The config of partition 0 is valid. If a change of another partition fails, the next PUT of the same config
        or the next start repeats it."""
        placement = self.placements.placement_for(topic, config)
        async with self.placements.changing(topic, placement):
            await self._change_at(topic, config, placement)

    async def _change_at(self, topic: Topic, config: TopicConfig, placement: Placement | None) -> None:
        logs = self._logs
        for each in (topic, *topic.others):
            logs.shards[each.log.shard].refuse_when_full()
            await self.consumers.check_change(each, config)
        if config.partitions > topic.config.partitions == 1:
            # A router may have come meanwhile. One that comes now waits for this change, and finds the partitions.
            await self.check_ends(topic.name, False)
            await self.check_takes_none(topic.name)
        await self.placements.hold(topic, config)
        made = await self._create_partitions(topic, config, topic.config.partitions, placement)
        before = topic.others
        try:
            # A router may have come meanwhile.
            check_partitions(logs.catalog, logs.options, topic.name, config, topic)
            await self.change(topic, config, placement=placement if placement != topic.placement else None)
        except StorageFailed:
            raise  # as in `_create_at`
        except StorageError:
            if topic.config.partitions < config.partitions:
                await self.discard(made)
            raise
        if before:
            await asyncio.gather(*(self.change(each, config) for each in before))

    async def discard(self, made: list[Topic]) -> None:
        """Delete partitions that do not count after all. If the log does not accept that now, the next start does
        it."""
        pending: list[asyncio.Future[int | None]] = []
        for topic in made:
            if topic.provisional:
                self._logs.catalog.remove(topic)
            else:
                pending.append(self.submit_deletion(topic))
        await _wait_deleted(pending)

    def submit_deletion(self, topic: Topic) -> asyncio.Future[int | None]:
        """The frame that deletes one partition."""
        encoded = encode_controls([control.TopicDelete(name=topic.title)], topic.topic_id, self._logs.now_ms())
        return self._logs.submit_controls(topic.log, encoded, frees=True)

    # -- changing ----------------------------------------------------------------------------------------------------

    async def exclusively(self, topics: Sequence[Topic], work: Coroutine[None, None, Result]) -> Result:
        """Run a change while all writes to the topic wait. It continues when its caller is cancelled."""
        task = asyncio.ensure_future(work)
        changing = self._logs.changing
        ids = [topic.topic_id for topic in topics]
        for each in ids:
            changing[each] = task

        def on_done(_: object) -> None:
            for topic in topics:
                topic.log.being_written = False
            for each in ids:
                changing.pop(each, None)
                self.queues.on_changed(each)

        task.add_done_callback(on_done)
        return await asyncio.shield(task)

    async def align_all(self) -> None:
        """Give the config of partition 0 to the partitions that a crash or a full disk left with an older one.

        Without room for that it is tried again; if the shard has stopped the next start does it.
        """
        for name in sorted(self._logs.catalog.partitioned):
            try:
                await self.align(name)
            except StorageError as error:
                _log.warning("partitions_not_aligned", topic=name, error=str(error))

    async def align(self, name: str) -> None:
        """Give the config of partition 0 to the partitions of this topic that have another. Raises Unavailable."""
        topic = self._logs.topic(name)
        behind = [each for each in topic.others if each.config != topic.config]
        if behind and topic.topic_id not in self._logs.changing:
            await self.exclusively((topic, *topic.others), self._follow(behind, topic.config))

    async def _follow(self, behind: Sequence[Topic], config: TopicConfig) -> None:
        for each in behind:
            await self.change(each, config)

    async def change(
        self, topic: Topic, config: TopicConfig, *, paused: bool | None = None, placement: Placement | None = None
    ) -> None:
        """Replace the config of one partition, and in partition 0 the placement; durable on return. There are no writes
        to it meanwhile."""
        logs, log = self._logs, topic.log
        shard = logs.shards[log.shard]
        shard.refuse_when_full()
        await self.consumers.check_change(topic, config)
        if log.topic_id in logs.unannounced_losses:
            await logs.announce_losses(log)
        leases = await self._leases_to_write(topic, config)
        if topic.config.ttl_ms and topic.config.ttl_ms != config.ttl_ms:
            # No read returns records that the old ttl has expired. They are evicted before the new ttl in the log, so
            # that no later read returns them.
            await self._expiry.expire_if_possible(topic)
        pending: list[asyncio.Future[int | None]] = []
        if log.ephemeral and config.durability is not Durability.EPHEMERAL:
            pending = self._write_out(log)
            log.being_written = True  # what is deleted from here on is deleted in the WAL, too
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
            *_placement_frames(placement),
            *(value for value, _ in leases),
        ]
        nodes = ["", *_placement_nodes(placement), *(node for _, node in leases)]
        while (over := over_caps(config, log, 0, 0)) is not None:  # records may have been removed during a load
            planned = log.plan_eviction(*over)
            if isinstance(planned, Eviction):
                values.append(eviction(config, log, planned))
                nodes.append("")
                break
            await self._details.load_to_evict(log, planned)
        before, after = topic.config.durability, config.durability
        if before is not after and (before is Durability.FSYNC or after is Durability.EPHEMERAL):
            # No seq above the head was assigned. A start knows that of a log of the old class; of the new class it
            # could not know it, and would announce a loss.
            values.append(control.HeadWatermark(reserved=log.assigned_head))
            nodes.append("")
        if log.ephemeral:
            cursors = self._cursors(topic)
            values += cursors
            nodes += [""] * len(cursors)
        encoded = encode_controls(values, topic.topic_id, logs.now_ms(), nodes=nodes)
        pending.append(logs.submit_controls(log, encoded, generation=shard.generation))
        await asyncio.gather(*pending)
        await self._expiry.expire_if_possible(topic)  # the config is changed even if this fails

    def _cursors(self, topic: Topic) -> list[control.RouterCursor]:
        """The cursors of routers into a topic that was in memory only: from now on its log has them."""
        return [
            control.RouterCursor(
                router_id=router.router_id, source_seq=router.cursor, source_epoch=router.source_epoch or None
            )
            for router in self._logs.catalog.routes.into.get(topic.topic_id, ())
        ]

    async def _leases_to_write(self, topic: Topic, config: TopicConfig) -> list[tuple[control.Lease, str]]:
        """The leases that were in memory only and are durable from now on."""
        table = topic.log.queue
        if table is None or leases_durable(topic.config) or not leases_durable(config):
            return []
        await self.queues.wait_decided(topic)
        return lease_frames(table)

    def _write_out(self, log: Log) -> list[asyncio.Future[int | None]]:
        """An ephemeral log becomes durable: write its records from memory to the WAL, before the new config."""
        logs = self._logs
        generation = logs.shards[log.shard].generation

        def submit(encoded: EncodedUnit) -> asyncio.Future[int | None]:
            return logs.submit_controls(log, encoded, generation=generation)

        now = logs.now_ms()
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
            # The newest batch was written even if the index has dropped it, so that its seqs count as used.
            gone.append(control.Delete(bound_head=log.head, before_seq=earliest))
        opened: dict[tuple[int, str | None], list[tuple[int, int, int, int, int, int]]] = {}
        for seq, move in log.moves.out.items():
            opened.setdefault((move.dest_id, move.reason), []).append((seq, 0, 0, move.deliveries, 0, 0))
        gone += [control.Lease(event="dead", jobs=jobs, dest_id=to, reason=why) for (to, why), jobs in opened.items()]
        pending += [submit(encode_controls([each], log.topic_id, now)) for each in gone]
        return pending

    # -- deleting ----------------------------------------------------------------------------------------------------

    async def delete(self, name: str, *, if_empty: bool) -> list[str] | None:
        """Delete the topic and everything in it. Durable on return.

        Returns the names of the routers that were deleted with it; None when there is no topic.
        """
        check_topic_name(name)
        if if_empty and (found := self._logs.catalog.topics.get(name)) is not None:
            await self._expiry.let_expire((found,))  # expired records do not count as held
        while True:
            topic = self._logs.catalog.topics.get(name)
            if topic is None:
                return None
            changing = self._logs.changing.get(topic.topic_id)
            if changing is None:
                break
            await asyncio.wait([changing])
        parts = list(self._logs.catalog.parts.get(topic.topic_id, {}).values())
        if topic.placement is None:
            self._check_empty(topic, parts, 0, if_empty=if_empty)
            await self.exclusively((topic, *parts), self._delete_all(self.submit_deletion(topic), parts))
        else:
            await self.exclusively((topic, *parts), self._delete_at(topic, parts, if_empty=if_empty))
        for each in (topic, *parts):
            self.forget(each)
        return sorted(router.name for router in topic.routers_removed)

    def _check_empty(self, topic: Topic, parts: list[Topic], elsewhere: int, *, if_empty: bool) -> None:
        """`elsewhere`: how many records other cells have of it."""
        held = elsewhere + topic.log.assigned_count + sum(part.log.assigned_count for part in parts)
        if if_empty and held:
            raise TopicNotEmpty(f"{topic.name} still holds {held} records.", count=held)

    async def _delete_at(self, topic: Topic, parts: list[Topic], *, if_empty: bool) -> None:
        async with self.placements.changing(topic, topic.placement):
            elsewhere = await self.placements.hold(topic, None)
            self._check_empty(topic, parts, elsewhere, if_empty=if_empty)
            await self._delete_all(self.submit_deletion(topic), parts)

    async def check_change(self, topic: Topic, config: TopicConfig) -> None:
        """Raises TopicIncompatible if a partition cannot have this config."""
        await self.consumers.check_change(topic, config)

    def forget(self, topic: Topic) -> None:
        """Forget the in-memory state of a partition that was deleted."""
        self._reservations.forget(topic.topic_id)

    async def _delete_all(self, done: asyncio.Future[int | None], parts: list[Topic]) -> None:
        """`done`: the deletion of partition 0, with which the whole topic is gone."""
        await done
        await _wait_deleted([self.submit_deletion(part) for part in parts])

    async def _wait_unchanged(self, name: str) -> Topic:
        """The topic, when it is not being changed and its log's queue has room. Raises TopicNotFound, WalSaturated."""
        while True:
            topic = self._logs.topic(name)
            shard = self._logs.shards[topic.log.shard]
            if (changing := self._logs.changing.get(topic.topic_id)) is not None:
                # The records that a change writes from memory are fixed: a delete during the change would be lost.
                await asyncio.wait([changing])
            elif topic.log.in_memory_only or shard.has_room(1, 0):
                return topic
            else:
                await shard.wait_room(1, 0)

    async def _looked_up(self, log: Log, value: control.Delete) -> control.Delete | LookedUp:
        """The Delete with the records of segments that it wants, which are looked up off the loop."""
        held, last = log.held, log.delete_end(value)
        if value.match is None and value.seqs is None:
            floor = log.marks.live_floor
            while (segment := held.wants(floor, last + 1, floor)) is not None:
                await self._details.load(log, segment)
                floor = log.marks.live_floor
            return value
        access = held.access
        assert access is not None  # set with the catalog at recovery
        while True:
            found = FoundRecords(held.flushed, [], [])
            gone = False
            for wanted in plan(held, value, log.marks.live_floor, last):
                try:
                    job = partial(look_up, access, log.topic_id, wanted, 0, last)
                    seqs, sizes = await run_segment_job(self._logs, log, wanted.segment, job)
                except SegmentGone:
                    gone = True  # dropped or rewritten meanwhile: start again
                    break
                found.seqs.extend(seqs)
                found.sizes.extend(sizes)
            if found.flushed == held.flushed and not gone:
                break
        return LookedUp(value, found)

    async def delete_jobs(self, topic: Topic, request: control.Delete, known: LookedUp | None, *, sync: bool) -> None:
        """Delete jobs by seq; on return as durable as the topic, or synced.

        `known`: the same Delete with its records of segments looked up. Raises Unavailable.
        """
        logs, log = self._logs, topic.log
        if log.in_memory_only:
            await self.queues.commit(topic, [request])
            return
        value = known or request
        if known is None and request.seqs and min(request.seqs) <= log.held.flushed:
            value = await self._looked_up(log, request)
        needs_sync = sync or topic.config.durability is Durability.FSYNC or logs.syncs_leases(topic.config)
        encoded = encode_controls([value], topic.topic_id, logs.now_ms(), durable=needs_sync)
        shard = logs.shards[log.shard]
        while not shard.has_room(encoded.frames, len(encoded.payload), internal=True):
            await shard.wait_room(encoded.frames, len(encoded.payload))
        if logs.catalog.by_id.get(topic.topic_id) is not topic:
            raise TopicNotFound(topic.name)
        await asyncio.shield(logs.submit_controls(log, encoded, frees=True, needs_sync=needs_sync))

    async def set_paused(self, topic: Topic, paused: bool) -> None:
        """Pause or resume a queue: a paused queue delivers nothing. Durable on return."""
        # The next start may find a change in a stopped shard that is not visible here.
        if topic.paused != paused or self._logs.shards[topic.log.shard].log.failed is not None:
            await self.exclusively((topic,), self.change(topic, topic.config, paused=paused))

    async def delete_records(self, name: str, before_seq: int | None, match: TagMatch | None) -> DeletedRecords:
        """Delete records permanently, without a tombstone; as durable on return as the topic."""
        if before_seq is None and match is None:
            raise InvalidRequest("Give before_seq or match.", field="before_seq")
        logs = self._logs
        topic = await self._wait_unchanged(name)
        log = topic.log
        value = control.Delete(
            bound_head=log.head, before_seq=before_seq, match=None if match is None else tag_predicate(match)
        )
        if log.in_memory_only:
            deleted = log.delete(value)
        else:
            needs_sync = topic.config.durability is Durability.FSYNC
            looked_up = await self._looked_up(log, value)
            encoded = encode_controls([looked_up], log.topic_id, logs.now_ms(), durable=needs_sync)
            done = logs.submit_controls(log, encoded, frees=True, needs_sync=needs_sync)
            deleted = await asyncio.shield(done) or 0
        return DeletedRecords(
            topic=name,
            deleted=deleted,
            earliest_seq=log.earliest_seq,
            head_seq=log.head,
            count=log.count,
            bytes=log.bytes,
        )


def _placement_frames(placement: Placement | None) -> list[control.Control]:
    """The frame of a placement."""
    return [] if placement is None else [control.State(kind=SPREAD, key=CELLS, value=encode_placement(placement))]


def _placement_nodes(placement: Placement | None) -> list[str]:
    return [] if placement is None else [""]


async def _no_ends(topic: str, look: bool) -> None:
    """For an engine that is not a cell: its catalog has all routers."""


async def _nothing(*_: str) -> None:
    """An engine that is no cell: its catalog has all queues."""


async def _wait_deleted(pending: list[asyncio.Future[int | None]]) -> None:
    """Wait for deletions of partitions; the next start repeats those that fail."""
    for outcome in await asyncio.gather(*pending, return_exceptions=True):
        if isinstance(outcome, StorageError):
            _log.warning("partition_not_deleted", error=str(outcome))
        elif isinstance(outcome, BaseException):
            raise outcome
