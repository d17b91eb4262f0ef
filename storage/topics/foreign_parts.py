"""Partitions of topics of other cells, in the cell that has them. The cell of partition 0 decides about them.

    spread_make    creates partitions that do not count yet: nobody finds them
    spread_hold    holds back writes to them, because the topic is being changed
    spread_tell    says which of them count, and with which config; the others are deleted
    spread_states  their states

Every call may arrive twice, late, or not at all: see `storage.platform.Era`. Calls about one topic are executed
one after the other.

Source: docs/cells.md#partitions-in-several-cells.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
import structlog

from storage.errors import StorageError
from storage.format import control
from storage.log import encode_controls
from storage.platform import Eras, Method
from storage.records import TopicConfig, TopicState, address, cell_of
from storage.state import COUNTS, SPREAD, Topic, creation

if TYPE_CHECKING:
    from storage.log import Logs
    from storage.topics.expiry import Expiry

_log = structlog.get_logger("storage")

MAKE: Final = "spread_make"
HOLD: Final = "spread_hold"
TELL: Final = "spread_tell"
STATES: Final = "spread_states"
#: How long writes wait for `spread_tell` after `spread_hold`.
HOLD_S: Final = 10.0

_states = msgspec.msgpack.Decoder(list[tuple[int, int, TopicState]])


def decode_states(answer: bytes) -> list[tuple[int, int, TopicState]]:
    """(topic_id of partition 0, number of the partition, its state) of an answer to `spread_states`."""
    return _states.decode(answer)


class Changes(Protocol):
    """Changes of partitions: `storage.topics.admin.TopicAdmin`."""

    def submit_creation(self, topic: Topic, creating: control.TopicCreate) -> asyncio.Future[int | None]: ...

    def submit_deletion(self, topic: Topic) -> asyncio.Future[int | None]: ...

    async def discard(self, made: list[Topic]) -> None: ...

    async def change(self, topic: Topic, config: TopicConfig) -> None: ...

    async def exclusively(self, topics: Sequence[Topic], work: Coroutine[None, None, Any]) -> Any: ...

    async def check_change(self, topic: Topic, config: TopicConfig) -> None: ...

    def forget(self, topic: Topic) -> None: ...


class ForeignParts:
    """The methods that the cells of topics call. Belongs to the event loop."""

    def __init__(self, logs: Logs, changes: Changes, expiry: Expiry, state_of: Callable[[Topic], TopicState]) -> None:
        self._logs = logs
        self._changes = changes
        self._expiry = expiry
        self._state_of = state_of
        self._eras = Eras()
        #: By topic_id of partition 0: the last piece of work for that topic.
        self._last: dict[int, asyncio.Task[Any]] = {}
        #: By topic_id of a partition: writes to it wait for this.
        self._held: dict[int, asyncio.Future[None]] = {}
        self._releasing: set[asyncio.Task[None]] = set()

    @property
    def methods(self) -> dict[str, Method]:
        """By name."""
        return {MAKE: self._make, HOLD: self._hold, TELL: self._tell, STATES: self._states_of}

    async def stop(self) -> None:
        """Cancel the work in progress: the cells of the topics repeat their calls to the next process."""
        tasks = [*self._releasing, *self._last.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _make(self, argument: Any) -> None:
        """Make partitions of a topic that are not here yet. Synced on return; they do not count yet."""
        era, root_id, title, numbers, config = argument
        await self._next(era, root_id, lambda: self._make_all(root_id, title, numbers, TopicConfig.from_map(config)))

    async def _hold(self, argument: Any) -> int:
        """Let writes to the partitions wait. Returns how many records they have, including records in flight. Raises
        the error that forbids this config (None: no config is checked).
        """
        era, root_id, config = argument
        wanted = None if config is None else TopicConfig.from_map(config)
        return await self._next(era, root_id, lambda: self._hold_all(root_id, wanted))

    async def _tell(self, argument: Any) -> None:
        """These partitions of the topic count, with this config; all others are deleted. Synced on return."""
        era, root_id, title, numbers, config = argument
        wanted = TopicConfig() if config is None else TopicConfig.from_map(config)
        await self._next(era, root_id, lambda: self._apply_counts(root_id, title, numbers, wanted))

    async def _states_of(self, argument: Any) -> bytes:
        """The states of the partitions of these topics."""
        _, root_ids = argument
        self._logs.check_open()
        uncounted = self._logs.catalog.uncounted
        parts = [part for root_id in root_ids for part in self._parts(root_id) if uncounted.get(part.name) is not part]
        await self._expiry.let_expire(parts)
        return msgspec.msgpack.encode([(part.root_id, part.partition, self._state_of(part)) for part in parts])

    # -- the work ----------------------------------------------------------------------------------------------------

    def _parts(self, root_id: int) -> list[Topic]:
        return [*self._logs.catalog.parts.get(root_id, {}).values()]

    async def _next(self, era: int, root_id: int, work: Any) -> Any:
        """Do this after all other work for that topic, also when the caller goes away."""
        self._logs.check_open()
        self._eras.enter(cell_of(root_id), era)
        task = asyncio.ensure_future(self._after(self._last.get(root_id), work))
        self._last[root_id] = task

        def done(ended: asyncio.Task[Any]) -> None:
            if self._last.get(root_id) is ended:
                del self._last[root_id]
            if not ended.cancelled():
                ended.exception()  # retrieve it: the caller may have gone

        task.add_done_callback(done)
        return await asyncio.shield(task)

    async def _after(self, before: asyncio.Task[Any] | None, work: Any) -> Any:
        if before is not None:
            await asyncio.wait([before])
        return await work()

    async def _make_all(self, root_id: int, title: str, numbers: Sequence[int], config: TopicConfig) -> None:
        logs, catalog = self._logs, self._logs.catalog
        made: list[Topic] = []
        pending: list[Awaitable[int | None]] = []
        try:
            for number in numbers:
                if number in catalog.parts.get(root_id, {}):
                    continue
                topic_id = catalog.claim_topic_id(logs.shard_is_open)
                value = creation(title, root_id, number, config.partitions, topic_id, config.to_map())
                topic = catalog.add(topic_id, value)
                topic.provisional = True
                made.append(topic)
                logs.shards[topic.log.shard].refuse_when_full()
                pending.append(self._changes.submit_creation(topic, value))
            await asyncio.gather(*pending)
        except StorageError:
            await asyncio.gather(*pending, return_exceptions=True)
            await self._changes.discard(made)
            raise

    async def _hold_all(self, root_id: int, config: TopicConfig | None) -> int:
        logs = self._logs
        parts = self._parts(root_id)
        await self._expiry.let_expire(parts)
        for part in parts:
            logs.shards[part.log.shard].refuse_when_full()
            if config is not None:
                await self._changes.check_change(part, config)
        ids = [part.topic_id for part in parts if part.topic_id not in logs.changing]
        held: asyncio.Future[None] = logs.runtime.loop.create_future()
        for each in ids:
            logs.changing[each] = self._held[each] = held
        if ids:
            releasing = logs.runtime.loop.create_task(self._release_late(held), name="storage-hold")
            self._releasing.add(releasing)
            releasing.add_done_callback(self._releasing.discard)
        return sum(part.log.assigned_count for part in parts)

    async def _release_late(self, held: asyncio.Future[None]) -> None:
        waiting = asyncio.ensure_future(self._logs.clock.sleep(HOLD_S))
        try:
            await asyncio.wait((waiting, held), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            self._release(held)

    def _release(self, held: asyncio.Future[None]) -> None:
        for each in [each for each, future in self._held.items() if future is held]:
            del self._held[each]
            if self._logs.changing.get(each) is held:
                del self._logs.changing[each]
        if not held.done():
            held.set_result(None)

    async def _apply_counts(self, root_id: int, title: str, numbers: Sequence[int], config: TopicConfig) -> None:
        logs, catalog = self._logs, self._logs.catalog
        gone = [part for part in self._parts(root_id) if part.partition not in numbers]
        for number in numbers:  # an earlier topic of that name is gone, otherwise this one would not exist
            at = address(title, number)
            known = (catalog.topics.get(at), catalog.uncounted.get(at))
            gone.extend(older for older in known if older is not None and _is_before(older.root_id, root_id))
        deleting = [asyncio.ensure_future(self._changes.exclusively([part], self._delete(part))) for part in gone]
        await asyncio.sleep(0)
        # From here on, writes to those wait for their deletion. Writes that were held until now cannot come before it.
        for held in [
            *{id(held): held for each in self._parts(root_id) if (held := self._held.get(each.topic_id))}.values()
        ]:
            self._release(held)
        await asyncio.gather(*deleting)
        missing = [number for number in numbers if number not in catalog.parts.get(root_id, {})]
        if missing:
            # A partition that counts is missing only in a cell that was restored as of another instant than the topic's
            # cell.
            for number in missing:
                _log.error("partition_lost", topic=title, partition=number, topic_id=root_id)
            await self._make_all(root_id, title, missing, config)
        for part in self._parts(root_id):
            if catalog.uncounted.get(part.name) is part:
                mark = control.State(kind=SPREAD, key=COUNTS, value=b"")
                await logs.submit_controls(part.log, encode_controls([mark], part.topic_id, logs.now_ms()))
            while (changing := logs.changing.get(part.topic_id)) is not None:
                await asyncio.wait([changing])
            if part.config != config:
                await self._changes.exclusively([part], self._changes.change(part, config))

    async def _delete(self, part: Topic) -> None:
        await self._changes.submit_deletion(part)
        self._changes.forget(part)


def _is_before(root_id: int, later_id: int) -> bool:
    """Whether the same cell made both ids, and this one first."""
    return root_id < later_id and cell_of(root_id) == cell_of(later_id)
