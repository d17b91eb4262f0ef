"""Moves segments to the cold tier, and keeps the cold store in step with the manifests.

The steps for one segment, each durable before the next (steps 2 and 5 only in a tier with objects of its own; in
another one, a segment moves when the tier has it):

    1  write .len and .tag, which stay local  crash: more derived files exist
    2  put .data and .idx, read them back     crash: objects that no manifest names: put again, or removed later
    3  Segment{tier: cold}                    from here on reads use the store, unless they find a local .data
    4  unlink the local .data                 crash before: the next start does it
    5  put topic.json                         crash before: the first round after the next start does it

While a segment is being copied it is in `Segments.busy`, because its files must not change. A deletion in a cold
segment changes the local .idx, and the object follows (`index_changed`). Dropped segments and deleted topics are
reported once their frame is synced (`gone`, `take_deleted`). After a start, unfinished work is found by comparing a
listing of the store with the manifests, and with `pending_deletes` for deleted topics.

One worker does everything, one thing at a time, so nothing that is removed can be an upload in progress.

Source: docs/reference/format.md#cold-tier.
"""

from __future__ import annotations

import asyncio
from typing import Any

import structlog

from storage.errors import ShuttingDown, StorageError
from storage.log import encode_controls
from storage.segments.errors import SegmentError
from storage.segments.housekeeping import needs_rewrite
from storage.segments.names import SegmentId
from storage.segments.segments import Segments
from storage.segments.store import id_of
from storage.segments.tiering import relocation
from storage.segments.tiering.named import NamedTier
from storage.segments.tiering.pending_uploads import PendingUploads, pending_for
from storage.segments.tiering.store import ColdError
from storage.segments.tiering.tier import ColdTier, Tier
from storage.state import COLD, HOT, Log, Segment, Topic

_log = structlog.get_logger("storage")

#: After this many logs failed in one round, the store is left alone until the next round.
_MAX_TROUBLE = 3
#: Topics examined before other work gets the loop.
_SLICE = 1000


class Relocator:
    """One round at a time. Does nothing without a cold tier."""

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self._logs = segments.logs
        self._runtime = segments.logs.runtime
        segments.on_removed = self.gone
        self._round: asyncio.Task[None] | None = None
        self._stopping = False
        #: Logs that have objects in the store; None until it has been listed.
        self._present: set[int] | None = None
        self._pending: dict[int, PendingUploads] = {}
        self._leftover: list[SegmentId] = []
        self._troubled: set[int] = set()
        #: Deleted logs whose local folder is gone and whose objects are still to be removed.
        self.deleted: set[int] = set()
        #: Counters for the metrics: segments moved and their bytes, objects of segments removed.
        self.relocated = 0
        self.relocated_bytes = 0
        self.removed = 0

    # -- called by other parts, on the loop --------------------------------------------------------------------------

    def gone(self, id: SegmentId, tier: str) -> None:
        """A synced frame has taken this segment out of its manifest."""
        pending = self._pending.get(id.topic_id)
        if self._objects is not None and (tier == COLD or (pending is not None and id in pending.attempted)):
            pending = self._owes(id.topic_id)
            pending.garbage.add(id)
            pending.attempted.discard(id)
            pending.indexes.pop(id, None)
            pending.topic_file = True

    def index_changed(self, id: SegmentId) -> None:
        """Deletions were flagged in the .idx of a cold segment."""
        if self._objects is not None:
            self._owes(id.topic_id).indexes[id] = False

    def take_deleted(self, topic_id: int) -> bool:
        """The local folder of a deleted log is gone. True: it has objects, and is forgotten when they are removed."""
        if self._objects is None or (self._present is not None and topic_id not in self._present):
            return False
        self.deleted.add(topic_id)
        return True

    @property
    def _objects(self) -> ColdTier | None:
        """The tier, if its objects are kept in step with the manifests here."""
        cold = self._segments.store.cold
        return cold if isinstance(cold, ColdTier) else None

    def _owes(self, topic_id: int) -> PendingUploads:
        return self._pending.setdefault(topic_id, PendingUploads())

    # -- rounds ----------------------------------------------------------------------------------------------------

    async def tick(self) -> None:
        """One round; it continues when its caller is cancelled. Raises an error; the next round tries again."""
        if self._runtime.load_shedding.must_wait("relocator"):
            return
        await self.wait_idle()
        self._round = asyncio.ensure_future(self.work())
        await asyncio.shield(self._round)

    def begin_stop(self) -> None:
        """Begin nothing more: the round in progress ends at its next step."""
        self._stopping = True

    async def wait_idle(self) -> None:
        """Wait until no round is in progress."""
        while self._round is not None and not self._round.done():
            await asyncio.wait([self._round])
        if self._round is not None and not self._round.cancelled():
            self._round.exception()  # the caller of `tick` gets it

    async def work(self) -> None:
        """One round: see the module."""
        cold = self._segments.store.cold
        if cold is None:
            return
        objects = self._objects
        if objects is not None and self._present is None:
            if objects.mark_used is not None:
                used = any(_has_cold(topic) for topic in self._logs.catalog.topics.values())
                await self._run(objects.mark_used, used)
            self._present = await self._take_stock(objects)
        failure: Exception | None = None
        trouble = 0
        try:
            await self._remove_hot_data()
            if objects is not None:
                await self._remove_logs(objects)
        except (StorageError, OSError) as error:  # what cannot be removed must not keep others from moving
            failure = error
        # Logs that failed go last, so that they do not block the others.
        for topic in sorted(await self._due(), key=lambda topic: topic.topic_id in self._troubled):
            if self._stopping or trouble >= _MAX_TROUBLE:
                break
            try:
                await self._look_after(cold, topic)
                self._troubled.discard(topic.topic_id)
            except (StorageError, SegmentError, OSError) as error:
                self._troubled.add(topic.topic_id)
                failure = error
                trouble += 1
        if failure is not None and not self._stopping:
            raise failure

    async def _due(self) -> list[Topic]:
        """Topics for which there is something to do."""
        found: list[Topic] = []
        for number, topic in enumerate(list(self._logs.catalog.topics.values()), 1):
            if number % _SLICE == 0:
                await asyncio.sleep(0)
            logs = () if topic.provisional else topic.logs
            if any(log.topic_id in self._pending or self._next(log) is not None for log in logs):
                found.append(topic)
        return found

    async def _run(self, job: Any, *arguments: Any, **options: Any) -> Any:
        """Run a job on the cold pool, and count it if it fails."""
        try:
            return await self._runtime.run_cold(lambda: job(*arguments, **options))
        except ColdError:
            cold = self._segments.store.cold
            assert cold is not None
            cold.count_error()
            raise

    def _go_on(self) -> None:
        if self._stopping:
            raise ShuttingDown()

    async def _look_after(self, cold: Tier, topic: Topic) -> None:
        for log in topic.logs:
            if self._logs.shards[log.shard].log.failed is not None:
                continue
            while not self._stopping and (segment := self._next(log)) is not None:
                if not await self._relocate(cold, log, segment):
                    break
                if isinstance(cold, ColdTier):
                    await self._put_topic_file(cold, topic, log)
            pending = self._pending.get(log.topic_id)
            if pending is not None and isinstance(cold, ColdTier):
                await self._pay(cold, topic, log, pending)

    def _next(self, log: Log) -> Segment | None:
        """The oldest segment that is to move now. All older ones have moved, so the cold tier has no gaps."""
        options, shared, cold = self._logs.options, self._segments, self._segments.store.cold
        if cold is None or not cold.is_open:
            return None
        segments = log.held.manifest.segments
        if len(segments) <= options.hot_retain_segments and not options.hot_retain_bytes:
            return None
        for segment in relocation.beyond_retention(segments, options.hot_retain_segments, options.hot_retain_bytes):
            if segment.tier == HOT and segment.live:
                pinned = shared.pins.holds(id_of(log.topic_id, segment))
                waits = pinned or segment in shared.busy or needs_rewrite(log, segment)
                if isinstance(cold, NamedTier):
                    waits = waits or not cold.has(id_of(log.topic_id, segment), segment.data_bytes)
                return None if waits else segment
        return None

    async def _relocate(self, cold: Tier, log: Log, segment: Segment) -> bool:
        """Steps 1 to 4. Returns whether the segment has moved."""
        shared, id = self._segments, id_of(log.topic_id, segment)
        shared.busy.add(segment)
        try:
            await self._run(relocation.write_sidecars, shared.store, log.topic_id, segment)
            if isinstance(cold, ColdTier):
                self._owes(log.topic_id).attempted.add(id)
                assert self._present is not None
                self._present.add(log.topic_id)
                await self._run(relocation.copy, shared.store, cold, log.topic_id, segment, self._go_on)
            self._go_on()
            if not self._names(id, HOT) or shared.pins.holds(id):
                return False  # the topic was deleted, or the segment is pinned and is put again later
            frame = encode_controls([segment.frame("tier", tier=COLD)], log.topic_id, self._logs.now_ms())
            await self._logs.submit_controls(log, frame, frees=True)
            if not self._names(id, COLD):
                return False
            if self._objects is not None:
                pending = self._owes(log.topic_id)
                pending.attempted.discard(id)
                pending.topic_file = True
            self._leftover.append(id)
        finally:
            shared.busy.discard(segment)
        self.relocated += 1
        self.relocated_bytes += segment.data_bytes
        await self._remove_hot_data()
        return True

    def _names(self, id: SegmentId, tier: str) -> bool:
        """Whether the log exists and its manifest has this segment in that tier."""
        log = self._logs.catalog.log(id.topic_id)
        segment = log.held.manifest.named(id.first_seq) if log is not None else None
        return segment is not None and (segment.gen, segment.tier) == (id.gen, tier)

    async def _remove_hot_data(self) -> None:
        runtime = self._runtime
        while self._leftover:
            id = self._leftover[0]
            await runtime.run_cold(relocation.remove_hot_data, runtime.fs, runtime.path, id)
            self._leftover.pop(0)
            self._segments.store.forget(id)  # close it, so that its space is freed

    # -- keeping the store in step -----------------------------------------------------------------------------------

    async def _pay(self, cold: ColdTier, topic: Topic, log: Log, pending: PendingUploads) -> None:
        runtime = self._runtime
        for id in list(pending.indexes):
            compare = pending.indexes.pop(id)
            if self._names(id, COLD):
                try:
                    await self._run(relocation.put_idx, runtime.fs, runtime.path, cold, id, compare=compare)
                except BaseException:
                    if self._names(id, COLD):
                        pending.indexes.setdefault(id, compare)
                    raise
        await self._put_topic_file(cold, topic, log)
        for id in list(pending.garbage):
            if not self._names(id, COLD):
                await self._run(relocation.remove_objects, cold, id)
                self.removed += 1
            pending.garbage.discard(id)
        if not pending:
            self._pending.pop(log.topic_id, None)

    async def _put_topic_file(self, cold: ColdTier, topic: Topic, log: Log) -> None:
        pending = self._owes(log.topic_id)
        if not pending.topic_file:
            return
        content = relocation.topic_file(cold.cluster_id, topic, log)
        pending.topic_file = False
        try:
            await self._run(cold.store.put_bytes, cold.topic_key(log.topic_id), content)
        except BaseException:
            pending.topic_file = True
            raise

    async def _remove_logs(self, cold: ColdTier) -> None:
        assert self._present is not None
        for topic_id in list(self.deleted):
            if topic_id in self._present:
                await self._run(relocation.remove_log, cold, topic_id)
            self._present.discard(topic_id)
            self._pending.pop(topic_id, None)
            self._troubled.discard(topic_id)
            self._logs.catalog.pending_deletes.discard(topic_id)
            self.deleted.discard(topic_id)

    async def _take_stock(self, cold: ColdTier) -> set[int]:
        """Find unfinished work of an earlier process by a listing. Returns the ids of logs that have objects."""
        found: dict[int, set[str]] = {}
        for key in await self._run(cold.store.list, cold.folder):
            parsed = cold.parse(key)
            if parsed is not None:
                found.setdefault(parsed[0], set()).add(parsed[1])
        catalog = self._logs.catalog
        for topic in catalog.topics.values():
            for log in topic.logs:
                pending = pending_for(log, found.get(log.topic_id, set()))
                if pending is not None:
                    self._pending[log.topic_id] = pending
        for topic_id in found.keys() - catalog.by_id.keys() - catalog.pending_deletes:
            _log.warning("unknown_folder_in_cold_tier", folder=cold.log_folder(topic_id))  # unknown, so not removed
        return set(found)


def _has_cold(topic: Topic) -> bool:
    return any(segment.tier == COLD for log in topic.logs for segment in log.held.manifest.segments)
