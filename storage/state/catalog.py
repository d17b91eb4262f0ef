"""All topics and logs of an engine, and one `apply` of control frames for live path and recovery.

No I/O and no clock. Each partition is a `Topic` with one log, found by its address; partition 0 by the topic's name.
A partition above 0 is found only while partition 0 counts it: it is created before that, and removed after partition
0 no longer counts it.

Source: docs/reference/format.md#frames, docs/reference/guarantees.md#recovery,
docs/adr/0009-topic-and-log-are-two-things.md.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import xxhash

from kernel import Batches
from storage.format import FrameType, control
from storage.records import Durability, ProducerBatch, TopicConfig, TopicType, address, cell_of, first_id
from storage.state.keys import KeyRing, Remembered, key_digest
from storage.state.log import Log
from storage.state.lookup import LookedUp
from storage.state.placement import CELLS, COUNTS, SPREAD, TO_TELL, Placement, placement_of
from storage.state.producer_table import ProducerTable
from storage.state.queues import LeaseTable, limits_of
from storage.state.routers import Router, Routes
from storage.state.state_table import ATTEMPT, OFFSET, OwnStates, StateTable
from storage.state.usage import Usage


def shard_of(topic_id: int, shards: int) -> int:
    """The shard that a log's frames are written to."""
    return xxhash.xxh3_64_intdigest(topic_id.to_bytes(8, "little")) % shards


def leases_durable(config: TopicConfig) -> bool:
    """Whether leases of a queue with this config are frames of its log. An ephemeral queue has no such frames."""
    return config.leases_durable and config.durability is not Durability.EPHEMERAL


class Topic:
    """One partition of a named topic; most topics have one. `provisional` until its creating frame is committed.

    `title` is the topic's name, `name` the address of this partition, `root_id` the topic_id of partition 0.
    """

    __slots__ = (
        "config",
        "last_read_ts",
        "log",
        "name",
        "next_partition",
        "others",
        "partition",
        "paused",
        "placement",
        "provisional",
        "root_id",
        "routed",
        "routers_removed",
        "title",
        "topic_id",
    )

    def __init__(self, title: str, topic_id: int, config: TopicConfig, partition: int = 0, root_id: int = 0) -> None:
        self.title = title
        self.partition = partition
        self.root_id = root_id or topic_id
        self.name = address(title, partition)
        self.topic_id = topic_id
        self.config = config
        #: In partition 0: partitions 1, 2, …, as many as count.
        self.others: tuple[Topic, ...] = ()
        #: In partition 0: the cells of the partitions; None: all are in this one. `others` are those in this one.
        self.placement: Placement | None = None
        #: In partition 0: the partition for the next write without a tag.
        self.next_partition = 0
        #: In partition 0: where writes with a key in progress go, by the key's digest.
        self.routed: dict[bytes, list[int]] = {}
        #: Its records; set by `Catalog.add`.
        self.log: Log
        self.paused = False
        self.provisional = False
        self.last_read_ts: int | None = None
        #: In a deleted topic: the routers that were deleted with it.
        self.routers_removed: list[Router] = []

    @property
    def logs(self) -> tuple[Log, ...]:
        """The logs of this partition: one."""
        return (self.log,)

    @property
    def partitions(self) -> int:
        """In partition 0: the number of partitions that can be written to, in all cells."""
        return 1 + len(self.others) if self.placement is None else len(self.placement.cells)


class Catalog:
    """Topics by name, logs by topic_id."""

    def __init__(self, shards: int, cell: int | None = None) -> None:
        """`cell`: the number of this cell; None: the engine is not part of a set of cells."""
        self.shards = shards
        self.cell = cell
        self.topics: dict[str, Topic] = {}
        self.by_id: dict[int, Topic] = {}
        #: Names of topics with more than one partition.
        self.partitioned: set[str] = set()
        #: By topic_id of partition 0: the partitions above 0, whether partition 0 counts them or not.
        self.parts: dict[int, dict[int, Topic]] = {}
        #: By address: partitions of topics of other cells, whose cells have not said yet that they count.
        self.uncounted: dict[str, Topic] = {}
        self._names: list[str] = []  # sorted
        self.usage = Usage()
        self.routes = Routes()
        #: Values that other components store with the engine, for no log.
        self.states = OwnStates()
        #: Called with a log when its slowest consumer has durably advanced or was deleted.
        self.on_consumed: Callable[[Log], None] | None = None
        #: Changes that recovery made to routers and consumers, still to be written: (topic_id, frame).
        self.unannounced: list[tuple[int, control.Control]] = []
        self.next_topic_id = first_id(cell or 0)
        #: Grows with each consumer created or deleted, and each topic deleted.
        self.consumer_changes = 0
        #: Topics whose name a later topic has and whose TopicDelete has not been found (yet): name by topic_id.
        self.superseded: dict[int, str] = {}
        #: Deleted logs whose folder of segments still exists.
        self.pending_deletes: set[int] = set()
        #: The floors that wait for `apply_deferred`, by topic_id.
        self.deferred: dict[int, control.EvictWatermark] = {}
        self._apply: dict[int, Callable[[int, int, Any], int | None]] = {
            FrameType.TOPIC_CREATE: self._topic_create,
            FrameType.TOPIC_DELETE: self._topic_delete,
            FrameType.CONFIG_UPDATE: self._config_update,
            FrameType.CHECKPOINT_MARK: self._checkpoint_mark,
            FrameType.SEGMENT: self._segment,
            FrameType.EVICT_WATERMARK: self._evict_watermark,
            FrameType.HEAD_WATERMARK: self._head_watermark,
            FrameType.ROUTER_CREATE: self._router_create,
            FrameType.ROUTER_DELETE: self._router_delete,
            FrameType.CONSUMER: self._consumer,
            FrameType.STATE: self._state,
            FrameType.MOVED: self._moved,
        }

    def named(self, prefix: str, after: str) -> Iterator[Topic]:
        """Topics whose name begins with `prefix`, in bytewise order, after the name `after`."""
        first = bisect_left(self._names, prefix) if prefix > after else bisect_right(self._names, after)
        for name in islice(self._names, first, None):
            if not name.startswith(prefix):
                return
            yield self.topics[name]

    @property
    def size(self) -> int:
        """The number of topics, not counting partitions."""
        return len(self._names)

    def log(self, topic_id: int) -> Log | None:
        """The live log with this id."""
        topic = self.by_id.get(topic_id)
        return topic.log if topic else None

    def is_foreign(self, any_id: int) -> bool:
        """Whether another cell made this id: the object is in that cell, and only that cell knows whether it is
        gone."""
        return self.cell is not None and cell_of(any_id) != self.cell

    def see_id(self, any_id: int) -> None:
        """This id is in use: claimed ids are above it. Ids of other cells are ignored."""
        if any_id >= self.next_topic_id and not self.is_foreign(any_id):
            self.next_topic_id = any_id + 1

    def apply(
        self, type_: int, topic_id: int, ts: int, value: Any, lsn: int = 0, node: str = "", *, may_defer: bool = False
    ) -> int | None:
        """Apply a committed control frame at `lsn`. Frames of deleted logs do nothing.

        `may_defer`: floors may be raised later, by `apply_deferred`, with those of later frames. They are raised before
        any other kind of frame is applied.

        Returns the number of records removed, for frames that remove some at once.
        """
        if may_defer and type_ == FrameType.EVICT_WATERMARK and self._defer(topic_id, value):
            return None
        if self.deferred:
            self.apply_deferred()
        if type_ == FrameType.DELETE:
            return self._delete(topic_id, value, lsn)
        if type_ == FrameType.LEASE:
            topic = self.by_id.get(topic_id)
            return None if topic is None else topic.log.take_lease(value, node)
        handler = self._apply.get(type_)
        return handler(topic_id, ts, value) if handler else None

    # -- topics ----------------------------------------------------------------------------------------------------

    def claim_topic_id(self, usable: Callable[[int], bool]) -> int:
        """An unused topic_id whose shard accepts writes; ids of stopped shards are skipped."""
        while not usable(shard_of(self.next_topic_id, self.shards)):
            self.next_topic_id += 1
        self.next_topic_id += 1
        return self.next_topic_id - 1

    def add(self, topic_id: int, value: control.TopicCreate | control.ConfigUpdate) -> Topic:
        """Create the log that a TopicCreate describes. A partition above 0 is found only by its id, until `link`."""
        root_id = value.topic if value.partition else topic_id
        topic = Topic(value.name, topic_id, TopicConfig.from_map(value.config), value.partition, root_id)
        shard = shard_of(topic_id, self.shards)
        log = Log(topic_id, shard=shard, epoch=value.epoch, usage=self.usage, partition=value.partition)
        log.set_ephemeral(topic.config.durability is Durability.EPHEMERAL)
        if topic.config.type is TopicType.QUEUE:
            log.queue = LeaseTable(limits_of(topic.config))
        topic.log = log
        topic.paused = bool(value.paused)
        if topic.partition:
            self.parts.setdefault(root_id, {})[topic.partition] = topic
            if self.is_foreign(root_id):
                self.uncounted[topic.name] = topic
        else:
            if topic.name not in self.topics:
                insort(self._names, topic.name)
            self.topics[topic.name] = topic
        self.by_id[topic_id] = topic
        self.see_id(topic_id)
        return topic

    def link(self, root: Topic) -> None:
        """Make the partitions that partition 0 counts known by their addresses."""
        if root.placement is not None and root.config.partitions > 1:
            self.partitioned.add(root.name)
        parts = self.parts.get(root.topic_id)
        if parts is None:
            return
        counted = (parts.get(partition) for partition in range(1, root.config.partitions))
        root.others = tuple(part for part in counted if part is not None)
        for part in root.others:
            self.topics[part.name] = part
        if root.others:
            self.partitioned.add(root.name)

    def count(self, part: Topic) -> None:
        """From now on, find this partition of another cell's topic by its address: that cell says that the partition
        counts."""
        if self.uncounted.get(part.name) is part:
            del self.uncounted[part.name]
        known = self.topics.get(part.name)
        if known is None or known.root_id <= part.root_id:  # else it is of a topic that was there before
            self.topics[part.name] = part

    def foreign_parts(self) -> list[list[Topic]]:
        """The partitions that count here of topics of other cells, by topic, each ascending."""
        found: list[list[Topic]] = []
        for root_id, parts in self.parts.items():
            if self.is_foreign(root_id):
                counted = [
                    parts[number] for number in sorted(parts) if self.topics.get(parts[number].name) is parts[number]
                ]
                if counted:
                    found.append(counted)
        return found

    def remove(self, topic: Topic) -> None:
        """Forget a log and release its usage. Without partition 0, only frames find the other partitions."""
        self.by_id.pop(topic.topic_id, None)
        if self.uncounted.get(topic.name) is topic:
            del self.uncounted[topic.name]
        self.consumer_changes += 1
        for each in (topic, *topic.others):
            if self.topics.get(each.name) is each:
                del self.topics[each.name]
                if not each.partition:
                    self.partitioned.discard(each.name)
                    del self._names[bisect_left(self._names, each.name)]
        topic.others = ()
        parts = self.parts.get(topic.root_id)
        if parts is not None and parts.get(topic.partition) is topic:
            del parts[topic.partition]
            if not parts:
                del self.parts[topic.root_id]
        topic.log.release()
        topic.routers_removed = self.routes.forget_topic(topic.topic_id)
        for router in topic.routers_removed:
            self._section_changed(router.dest_id)

    def _topic_create(self, topic_id: int, ts: int, value: control.TopicCreate) -> None:
        if (known := self.by_id.get(topic_id)) is not None:
            # Live path: the topic is here provisionally. Replay below as_of: it is in the snapshot.
            self._link_live(known)
            return
        older = None if value.partition else self.topics.get(value.name)
        if older is not None:
            # Of two live logs with the same name, the one with the higher id wins. Partitions above 0 are compared at
            # the end, when all of them are known.
            self.superseded[min(older.topic_id, topic_id)] = value.name
            if older.topic_id > topic_id:
                return
            self.remove(older)
        self._link_live(self.add(topic_id, value))

    def _link_live(self, topic: Topic) -> None:
        # A replay may reach the shard of another partition later, so it links all partitions at its end.
        if not topic.partition and not self.usage.replaying:
            self.link(topic)

    def _topic_delete(self, topic_id: int, ts: int, value: control.TopicDelete) -> None:
        topic = self.by_id.get(topic_id)
        self.superseded.pop(topic_id, None)
        self.pending_deletes.add(topic_id)
        if topic is not None:
            self.remove(topic)

    def _config_update(self, topic_id: int, ts: int, value: control.ConfigUpdate) -> None:
        topic = self.by_id.get(topic_id)
        if topic is None:
            return
        topic.config = TopicConfig.from_map(value.config)
        if value.paused is not None:
            topic.paused = value.paused
        if value.renewed_at is not None:
            topic.log.renew(value.epoch, value.renewed_at)
        else:
            topic.log.epoch = value.epoch
        if topic.log.queue is not None:
            topic.log.queue.review(limits_of(topic.config))
        topic.log.set_ephemeral(topic.config.durability is Durability.EPHEMERAL)
        topic.log.section = None
        self._link_live(topic)

    # -- what happens to records -----------------------------------------------------------------------------------

    def _delete(self, topic_id: int, value: control.Delete | LookedUp, lsn: int) -> int:
        topic = self.by_id.get(topic_id)
        if topic is None:
            return 0
        log = topic.log
        request, found = (value.delete, value.found) if isinstance(value, LookedUp) else (value, None)
        if request.ack and request.seqs is not None:
            log.jobs_done(request.seqs)
        went = log.delete(request, lsn, found)
        if not self.usage.replaying:
            self.usage.traffic.deleted += went
        return went

    def _checkpoint_mark(self, topic_id: int, ts: int, value: control.CheckpointMark) -> None:
        for each, seq in value.absorbed.items():
            log = self.log(each)
            if log is not None:
                log.mark_flushed(seq)

    def _segment(self, topic_id: int, ts: int, value: control.Segment) -> None:
        log = self.log(topic_id)
        if log is not None:
            log.take_segment(value)

    def _evict_watermark(self, topic_id: int, ts: int, value: control.EvictWatermark) -> int:
        log = self.log(topic_id)
        if log is None:
            return 0
        if log.queue is not None and value.jobs is not None:
            log.queue.lost += value.jobs
        went = log.evict(value.floors, value.loss)
        if went and not self.usage.replaying:
            self.usage.traffic.lost([*(value.floors or ()), *[cause for _, _, cause in value.loss or ()]], went)
        return went

    def _defer(self, topic_id: int, value: control.EvictWatermark) -> bool:
        """Whether it waits for `apply_deferred`. Each such frame of a log has higher floors than the one before."""
        if value.loss or not value.floors:
            return False
        before = self.deferred.get(topic_id)
        if before is not None:
            if before.floors is None or before.floors.keys() != value.floors.keys():
                return False  # counted by cause
            if value.jobs is not None and before.jobs is not None:
                value = control.EvictWatermark(floors=value.floors, jobs=before.jobs + value.jobs)
        self.deferred[topic_id] = value
        return True

    def apply_deferred(self) -> None:
        """Raise the deferred floors. Until then, only `apply` may read the log."""
        while self.deferred:
            topic_id, value = self.deferred.popitem()
            self._evict_watermark(topic_id, 0, value)

    def _head_watermark(self, topic_id: int, ts: int, value: control.HeadWatermark) -> None:
        log = self.log(topic_id)
        if log is not None:
            log.reserved = value.reserved
            log.section = None

    # -- routers ---------------------------------------------------------------------------------------------------

    def claim_id(self) -> int:
        """An unused id for a router or consumer, from the same sequence as topic_ids."""
        self.next_topic_id += 1
        return self.next_topic_id - 1

    def _router_create(self, topic_id: int, ts: int, value: control.RouterCreate) -> None:
        self.see_id(value.router_id)
        if topic_id in self.by_id:
            self.routes.create(topic_id, value)
            self._section_changed(topic_id)

    def _router_delete(self, topic_id: int, ts: int, value: control.RouterDelete) -> None:
        router = self.routes.by_id.get(value.router_id)
        if router is not None:
            self.routes.drop(router)
            self._section_changed(topic_id)

    def _consumer(self, topic_id: int, ts: int, value: control.Consumer) -> None:
        self.see_id(value.consumer_id)
        log = self.log(topic_id)
        if log is None:
            return
        before = log.consumers.lowest_durable()
        self.usage.consumers += log.consumers.apply(value)
        self.consumer_changes += value.event != "cursor"
        if log.states is not None and (value.seq is not None or value.event == "delete"):
            # Metadata of the old position does not belong to the new one; a State frame after this one sets new
            # metadata.
            for kind in (OFFSET, ATTEMPT):
                log.states.apply(control.State(kind=kind, key=value.name))
        log.section = None
        now = log.consumers.lowest_durable()
        if before is not None and (now is None or now > before) and self.on_consumed is not None:
            self.on_consumed(log)

    def _state(self, topic_id: int, ts: int, value: control.State) -> None:
        if topic_id == 0:
            self.states.table.apply(value)
            self.states.section = None
            if value.kind == TO_TELL:
                self.see_id(int(value.key))
            return
        topic = self.by_id.get(topic_id)
        if topic is not None:
            log = topic.log
            if log.states is None:
                log.states = StateTable()
            log.states.apply(value)
            log.section = None
            if value.kind == SPREAD and not self.usage.replaying:
                self.take_spread(topic)

    def take_spread(self, topic: Topic) -> None:
        """Apply the values of a partition's log about partitions in other cells."""
        if topic.log.states is None:
            return
        if topic.partition:
            if self.is_foreign(topic.root_id) and topic.log.states.get(SPREAD, COUNTS) is not None:
                self.count(topic)
        elif (cells := topic.log.states.get(SPREAD, CELLS)) is not None:
            topic.placement = placement_of(cells)
            self._link_live(topic)

    def _moved(self, topic_id: int, ts: int, value: control.Moved) -> None:
        log = self.log(topic_id)
        if log is not None:
            log.moves.came.update([(value.source_id, seq) for seq in value.seqs])
            log.section = None

    def move_router(self, topic_id: int, value: control.RouterCursor, copies: int) -> None:
        """Apply a RouterCursor frame that follows this many copies in its batch."""
        self.routes.moved(value, copies)
        self._section_changed(topic_id)

    def _section_changed(self, topic_id: int) -> None:
        log = self.log(topic_id)
        if log is not None:
            log.section = None

    def remember(self, topic_id: int, ts: int, batch: control.Batch, count: int) -> None:
        """Remember the idempotency key of a committed batch of `count` records, its move and its producer."""
        topic = self.by_id.get(topic_id)
        if topic is not None and batch.producer is not None and batch.first_seq is not None:
            self._sent(topic.log, ProducerBatch(*batch.producer), batch.first_seq, count, ts)
        if topic is not None and batch.move is not None:
            topic.log.moves.came.add(batch.move)
            topic.log.section = None
        if topic is None or batch.key is None or batch.first_seq is None:
            return
        log = topic.log
        if log.keys is None:
            log.keys = KeyRing()
        window_ms = topic.config.idempotency_window_ms
        digest = key_digest(batch.key)
        if log.keys.find(digest, ts, window_ms) is None:
            log.keys.add(Remembered(digest, batch.hash or bytes(16), batch.first_seq, count, ts), window_ms)
            self.usage.keys += 1
            log.section = None

    def remember_all(self, topic: Topic, batches: Batches) -> None:
        """`remember` for each of these batches."""
        log = topic.log
        if batches.keyed:
            if log.keys is None:
                log.keys = KeyRing()
            self.usage.keys += log.keys.add_all(batches.keyed, topic.config.idempotency_window_ms)
        if batches.sent:
            if log.producers is None:
                log.producers = ProducerTable()
            self.usage.producers += log.producers.take_all(batches.sent)

    def _sent(self, log: Log, batch: ProducerBatch, first_seq: int, count: int, ts: int) -> None:
        if count:  # 0: a replayed batch whose records exist already
            if log.producers is None:
                log.producers = ProducerTable()
            self.usage.producers += log.producers.take(batch, count, first_seq, ts)
            log.section = None
