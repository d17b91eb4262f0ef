"""The consumer instances of a broker: creates, finds and reads with them, restores them, and deletes idle ones.

Changes by clients (subscription, partitions, positions) are durable before they are answered. Positions of reads are
stored within a second, and when the broker stops: after a crash, an instance gets the records of at most that second
again. All methods run on the loop that started the engine.

Source: docs/guides/rest-proxy.md.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog

from broker.proxy import offsets
from broker.proxy.assignment import Partition
from broker.proxy.errors import (
    IllegalState,
    InstanceExists,
    InstanceMissing,
    PartitionMissing,
    TopicMissing,
    Unprocessable,
)
from broker.proxy.instance import KIND, Instance, check_name, config_of
from broker.proxy.membership import UNDEFINED, Group, Member
from broker.proxy.patterns import compiled
from broker.proxy.polling import Limits, ProxyRead
from broker.proxy.sources import Sources
from broker.scheduling import Slots
from storage import LimitReached, StorageError

if TYPE_CHECKING:
    from broker.kafka.groups import Coordinator
    from storage import Engine

_log = structlog.get_logger("broker.proxy")

TICK_S: Final = 1.0
#: How often an instance without partitions checks whether it has some.
_LOOK_S: Final = 0.1
_EXCLUSIVE: Final = "Subscription to topics, partitions and pattern are mutually exclusive"


class Instances:
    """See the module. `idle_s`: how long an unused instance is kept; `most`: the most instances."""

    def __init__(
        self,
        engine: Engine,
        coordinator: Coordinator | None = None,
        *,
        idle_s: float,
        most: int,
        sources: Sources | None = None,
    ) -> None:
        self._engine = engine
        #: What the instances read.
        self.sources = sources or Sources(engine)
        self._coordinator = coordinator
        self._idle_ms = idle_s * 1000
        self._most = most
        self._groups: dict[str, Group] = {}
        self._loaded = False
        self._task: asyncio.Task[None] | None = None
        #: True from `shut_down` on: reads no longer wait.
        self.stopping = False
        self.expired_total = 0
        self.refused_total = 0

    def __len__(self) -> int:
        return sum(len(group.members) for group in self._groups.values())

    def groups(self) -> Mapping[str, Group]:
        """All groups that have members."""
        self._load()
        return self._groups

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Restore the instances and begin to delete idle ones. Call it after the engine has started."""
        self._load()
        for group in self._groups.values():
            group.join_kafka_group()
        self._task = asyncio.create_task(self._run(), name="proxy-instances")

    def shut_down(self) -> None:
        """Answer waiting reads with the records they have, and end streams. Call it before the engine's waits end."""
        self.stopping = True

    async def stop(self) -> None:
        """Stop cleanly: write every position."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            self._task = None
        await self._write_moved()
        for group in self._groups.values():
            await group.leave_kafka_group(always=True)

    def _load(self) -> None:
        if self._loaded or not self._engine.ready:
            return
        self._loaded = True
        now_ms = self._engine.monotonic_ms()
        for key, value in self._engine.states.items(KIND):
            try:
                instance = Instance.decode(value)
            except (msgspec.DecodeError, KeyError, TypeError, ValueError):
                _log.error("proxy_instance_unreadable", key=key)
                continue
            self._group(instance.group).members[instance.name] = Member(instance, now_ms)

    def _group(self, name: str) -> Group:
        found = self._groups.get(name)
        if found is None:
            found = self._groups[name] = Group(self.sources, name, self._coordinator)
        return found

    async def _run(self) -> None:
        pause_s = min(TICK_S, self._idle_ms / 2000)
        while True:
            await self._engine.clock.sleep(pause_s)
            await self._write_moved()
            await self.expire()

    async def _write_moved(self) -> None:
        for member in self._members():
            if member.dirty:
                with suppress(
                    StorageError
                ):  # it is tried again; until then, more records would be repeated after a crash
                    await self._keep(member)

    async def expire(self) -> None:
        """Delete idle instances. Other members get the records that these have read but not committed."""
        for member in self._members():
            if self._is_idle(member):
                with suppress(StorageError):
                    await self._remove(member)
                    self.expired_total += 1

    def _members(self) -> list[Member]:
        return [member for group in self._groups.values() for member in group.members.values()]

    def _is_idle(self, member: Member) -> bool:
        return not member.busy and self._engine.monotonic_ms() - member.used_ms >= self._idle_ms

    async def _keep(self, member: Member) -> None:
        async with member.writing:
            if member.alive:
                member.dirty = False
                try:
                    await self._engine.states.put(KIND, member.instance.key, member.instance.encode())
                except BaseException:
                    member.dirty = True
                    raise

    async def _remove(self, member: Member) -> None:
        instance = member.instance
        async with member.writing:
            if not member.alive:
                return
            await self._engine.states.delete(KIND, instance.key)
            member.alive = False
        group = self._group(instance.group)
        group.members.pop(instance.name, None)
        for partition in instance.positions:
            if instance.subscribed:
                group.leave(member, partition)
        await group.leave_kafka_group()
        if group.members:
            group.distribute()
        else:
            self._groups.pop(instance.group, None)

    # -- one instance --------------------------------------------------------------------------------------------------

    async def create(self, group: str, given: dict[str, Any], prefixes: Sequence[str] = ()) -> Instance:
        """Create an instance; durable on return. `prefixes`: those of the key that creates it.

        Raises InstanceExists, InvalidConsumerConfig, Unprocessable, LimitReached, Unavailable.
        """
        self._load()
        check_name(group, "group")
        offsets.check_group(group)
        name = given.get("name") or given.get("id") or f"rest-consumer-{secrets.token_hex(8)}"
        if not isinstance(name, str):
            raise Unprocessable("name: expected a string.")
        check_name(name, "name")
        config = config_of(given)
        old = self._groups[group].members.get(name) if group in self._groups else None
        if old is not None:
            if not self._is_idle(old):
                raise InstanceExists
            await self._remove(old)
        if self._most and len(self) >= self._most:
            self.refused_total += 1
            limit = "max_kafka_rest_instances"
            raise LimitReached(f"The broker already has {self._most} consumer instances.", limit=limit, max=self._most)
        instance = Instance(group=group, name=name, config=config, prefixes=list(prefixes))
        member = Member(instance, self._engine.monotonic_ms())
        self._group(group).members[name] = member
        try:
            await self._keep(member)
        except BaseException:
            member.alive = False
            self._group(group).members.pop(name, None)
            if not self._group(group).members:
                self._groups.pop(group, None)
            raise
        return member.instance

    @contextmanager
    def using(self, group: str, name: str) -> Generator[Member]:
        """The instance; it does not become idle while it is used. Raises InstanceMissing."""
        self._load()
        found = self._groups[group].members.get(name) if group in self._groups else None
        if found is None or not found.alive or self._is_idle(found):
            raise InstanceMissing
        found.busy += 1
        try:
            yield found
        finally:
            found.busy -= 1
            found.used_ms = self._engine.monotonic_ms()

    async def delete(self, member: Member) -> None:
        """Delete it; durable on return. With auto commit, its last read is committed first. Raises Unavailable."""
        await self._commit_given(member)
        await self._remove(member)

    async def subscribe(
        self, member: Member, topics: Sequence[str], pattern: str | None, prefixes: Sequence[str]
    ) -> None:
        """Subscribe to topics, shared with the other members of the group. Durable on return.

        Raises IllegalState, Unprocessable, Unavailable.
        """
        instance = member.instance
        if bool(topics) == (pattern is not None):
            raise Unprocessable("Give either topics or topic_pattern.")
        if instance.chosen is not None or (instance.subscribed and (instance.pattern is None) != (pattern is None)):
            raise IllegalState(_EXCLUSIVE)
        if pattern is not None:
            compiled(pattern)
        await self.sources.look(instance.group, topics, names=pattern is not None)
        instance.topics, instance.pattern = sorted(set(topics)), pattern
        instance.prefixes = list(prefixes)
        # Topics that it had before stay known, so that it continues there.
        await self._group(instance.group).look()
        instance.known = sorted(each for each in member.topics(self.sources, anew=True) if self.sources.count(each))
        self._group(instance.group).join_kafka_group()
        self._group(instance.group).distribute(anew=True)
        await self._keep(member)

    async def unsubscribe(self, member: Member) -> None:
        """Remove all its topics and partitions. Durable on return. Raises Unavailable."""
        await self._commit_given(member)
        instance, group = member.instance, self._group(member.instance.group)
        if instance.subscribed:
            for partition in instance.positions:
                group.leave(member, partition)
        instance.topics, instance.pattern, instance.known, instance.chosen = [], None, [], None
        member.assign({})
        await group.leave_kafka_group()
        group.distribute()
        await self._keep(member)

    async def assign(self, member: Member, partitions: Sequence[Partition]) -> None:
        """Assign these partitions to it, even if others read them. Durable on return.

        Raises IllegalState, TopicMissing, PartitionMissing, Unavailable.
        """
        instance = member.instance
        if instance.subscribed:
            raise IllegalState(_EXCLUSIVE)
        await self.sources.look(instance.group, {topic for topic, _ in partitions})
        check_partitions(self.sources, partitions)
        group, has = self._group(instance.group), instance.positions
        instance.chosen = list(dict.fromkeys(partitions))
        member.assign({each: has[each] if each in has else group.begin(member, each) for each in instance.chosen})
        await self._keep(member)

    def assigned(self, member: Member) -> dict[Partition, int]:
        """Its current partitions, and the offset that it reads next in each."""
        if member.instance.subscribed:
            self._group(member.instance.group).distribute()
        return dict(member.instance.positions)

    async def seek(self, member: Member, positions: Mapping[Partition, int]) -> None:
        """Set its positions. Durable on return. Raises IllegalState (a partition it does not have), Unavailable."""
        self._group(member.instance.group).distribute()
        own = member.instance.positions
        for topic, number in positions:
            if (topic, number) not in own:
                raise IllegalState(f"No current assignment for partition {topic}-{number}")
        own.update(positions)
        for partition, offset in positions.items():
            member.given.pop(partition, None)
            member.began[partition] = min(offset, member.began.get(partition, offset))
        await self._keep(member)

    async def commit(self, member: Member, wanted: Mapping[Partition, tuple[int, str | None]] | None) -> None:
        """Commit these offsets and metadata for the group; None: everything read so far. Durable on return.

        Raises TopicMissing, PartitionMissing, InvalidRequest (a topic without consumers), Unavailable.
        """
        if wanted is None:
            wanted = {each: (offset, None) for each, offset in member.instance.positions.items() if offset != UNDEFINED}
        await self.sources.look(member.instance.group, {topic for topic, _ in wanted})
        check_partitions(self.sources, list(wanted))
        for partition, (offset, metadata) in wanted.items():
            await self.sources.commit(member.instance.group, partition, offset, metadata)
            member.given.pop(partition, None)
        if member.dirty:
            await self._keep(member)

    async def _commit_given(self, member: Member) -> None:
        if not member.instance.config.auto_commit or not member.given:
            return
        sources, group = self.sources, member.instance.group
        await sources.look(group, {topic for topic, _ in member.given})
        for partition, offset in list(member.given.items()):
            there = sources.count(partition[0]) > partition[1] and sources.keeps_offsets(partition[0])
            # If the offset is beyond the end, the topic is a new one of the same name.
            if there and offset <= sources.bounds(partition)[1]:
                await sources.commit(group, partition, offset)
            member.given.pop(partition, None)

    # -- reading -------------------------------------------------------------------------------------------------------

    async def read(self, member: Member, limits: Limits, parking: Slots) -> ProxyRead:
        """Read records from its positions, and advance them; with auto commit, commits the previous read first.

        Raises IllegalState (neither subscribed nor assigned), DataError, Unavailable, LimitReached.
        """
        instance = member.instance
        if not instance.subscribed and instance.chosen is None:
            raise IllegalState("Consumer is not subscribed to any topics or assigned any partitions")
        async with member.reading:
            await self._group(instance.group).look()
            await self._commit_given(member)
            deadline = monotonic() + limits.timeout_ms / 1000
            while not self._standing(member):
                left_s = deadline - monotonic()
                if left_s <= 0 or self.stopping:
                    return ProxyRead([], [], [], {}, {})
                with parking.hold():
                    await asyncio.sleep(min(left_s, _LOOK_S))
            before = self._standing(member)
            left_ms = max(0, round((deadline - monotonic()) * 1000))
            found = await self.sources.read(before, limits._replace(timeout_ms=left_ms), parking)
            return self._still_owned(member, found)

    def _standing(self, member: Member) -> dict[Partition, int]:
        """Its position in each of its partitions that exist."""
        instance = member.instance
        if instance.subscribed:
            self._group(instance.group).distribute()
        for partition, at in list(instance.positions.items()):
            if at != UNDEFINED and partition[1] < self.sources.count(partition[0]):
                self._return_from_beyond(member, partition, at)
        undefined = [f"{topic}-{number}" for (topic, number), at in instance.positions.items() if at == UNDEFINED]
        if undefined:
            raise IllegalState(f"Undefined offset with no reset policy for partitions: {undefined}")
        return {each: at for each, at in instance.positions.items() if each[1] < self.sources.count(each[0])}

    def _return_from_beyond(self, member: Member, partition: Partition, at: int) -> None:
        """Reset a position beyond the end. As in Kafka, `auto.offset.reset` decides where to."""
        first, end = self.sources.bounds(partition)
        if at <= end:
            return
        reset = member.instance.config.reset
        member.instance.positions[partition] = {"earliest": first, "latest": end}.get(reset, UNDEFINED)
        member.dirty = True

    @staticmethod
    def _still_owned(member: Member, found: ProxyRead) -> ProxyRead:
        """The part of a read that is still valid: during the wait, the assignment or the position may have changed."""
        own, before = member.instance.positions, found.began
        current = {each for each, at in before.items() if own.get(each) == at}
        for partition, offset in found.positions.items():
            if partition in current:
                del own[partition]  # moves to the end: the next read begins with the others
                own[partition] = offset
                if offset != before[partition]:
                    member.given[partition] = offset
                    member.dirty = True
        if len(current) == len(before):
            return found
        return ProxyRead(
            [each for each in found.records if (each.topic, each.partition) in current],
            [each for each in found.lost if each.partition in current],
            [each for each in found.corrupt if each[0] in current],
            {each: offset for each, offset in found.positions.items() if each in current},
            {each: offset for each, offset in before.items() if each in current},
        )

    @staticmethod
    def take_back(member: Member, found: ProxyRead) -> None:
        """Undo a read whose answer was certainly not sent: the next read returns the same records."""
        own = member.instance.positions
        for partition, offset in found.positions.items():
            if own.get(partition) == offset:
                own[partition] = found.began[partition]
                member.given.pop(partition, None)
                member.dirty = True  # the position after the read may be stored already


def check_partitions(sources: Sources, partitions: Sequence[Partition]) -> None:
    """Raises TopicMissing, PartitionMissing."""
    for topic, number in partitions:
        count = sources.count(topic)
        if not count:
            raise TopicMissing
        if not 0 <= number < count:
            raise PartitionMissing
