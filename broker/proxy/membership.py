"""Members of groups: the partitions and positions of each member.

The proxy distributes the partitions of a group among its subscribed members, not to those with manually assigned
partitions. All of this is in memory and derived from the instances: it is computed again after a restart.

Source: docs/guides/rest-proxy.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from broker.proxy.assignment import Partition, by_range
from broker.proxy.group_member import ProxyGroupMember
from broker.proxy.instance import Instance
from broker.proxy.patterns import compiled
from storage import StorageError, TopicNotFound

if TYPE_CHECKING:
    from broker.kafka.groups import Coordinator
    from broker.proxy.sources import Sources
    from storage import Engine

#: No position: nothing is committed, and auto.offset.reset is none.
UNDEFINED: Final = -1
#: How often patterns are matched with topic names again, ms.
PATTERN_MS: Final = 1000


class Member:
    """An instance in memory. `given`: the positions after the last read, which the next read commits."""

    def __init__(self, instance: Instance, now_ms: int) -> None:
        self.instance = instance
        self.used_ms = now_ms
        self.busy = 0
        #: One read at a time.
        self.reading = asyncio.Lock()
        #: One write of its state at a time.
        self.writing = asyncio.Lock()
        self.dirty = False
        self.alive = True
        self.given: dict[Partition, int] = {}
        #: Where it began: earlier records do not belong to this member.
        self.began = dict(instance.positions)
        self._matched: set[str] = set()
        self._matched_ms: int | None = None

    def topics(self, sources: Sources, *, anew: bool = False) -> set[str]:
        """The topics of its subscription. Those of a pattern may be a second old, unless `anew`."""
        instance = self.instance
        if instance.pattern is None:
            return set(instance.topics)
        now_ms = sources.engine.monotonic_ms()
        if anew or self._matched_ms is None or now_ms - self._matched_ms >= PATTERN_MS:
            self._matched, self._matched_ms = _matching(sources, instance), now_ms
        return self._matched

    def assign(self, positions: dict[Partition, int]) -> None:
        """Set its partitions and positions."""
        self.instance.positions = positions
        self.began = {each: self.began.get(each, offset) for each, offset in positions.items()}
        self.given = {each: offset for each, offset in self.given.items() if each in positions}
        self.dirty = True


def _matching(sources: Sources, instance: Instance) -> set[str]:
    assert instance.pattern is not None
    pattern, prefixes = compiled(instance.pattern), tuple(instance.prefixes)
    return {name for name in sources.names() if (not prefixes or name.startswith(prefixes)) and pattern.fullmatch(name)}


class Group:
    """The members of one group, and the start positions in partitions that were left without a commit."""

    def __init__(self, sources: Sources, name: str, coordinator: Coordinator | None) -> None:
        self._sources = sources
        self._coordinator = coordinator
        self.name = name
        self.members: dict[str, Member] = {}
        #: The member that represents the instances among Kafka clients, if the Kafka port is open.
        self.group_member: ProxyGroupMember | None = None
        self._released: dict[Partition, int] = {}

    async def look(self) -> None:
        """Ask other cells about the topics of the members. Raises Unavailable."""
        patterns = any(member.instance.pattern is not None for member in self.members.values())
        if patterns:
            await self._sources.look(self.name, (), names=True)
        await self._sources.look(self.name, self.topics())

    def distribute(self, *, anew: bool = False) -> None:
        """Distribute partitions among the subscribed members, from the current topics and members."""
        subscriptions = {
            name: member.topics(self._sources, anew=anew)
            for name, member in self.members.items()
            if member.instance.subscribed
        }
        if not subscriptions:
            return
        owned = by_range(
            subscriptions, {topic: self._numbers(topic) for topics in subscriptions.values() for topic in topics}
        )
        moved = [name for name, mine in owned.items() if mine != self.members[name].instance.positions.keys()]
        for name in moved:
            member = self.members[name]
            for partition in member.instance.positions.keys() - owned[name]:
                self.leave(member, partition)
        for name in moved:
            member = self.members[name]
            has = member.instance.positions
            member.assign(
                {each: has[each] if each in has else self.begin(member, each) for each in sorted(owned[name])}
            )

    def join_kafka_group(self) -> None:
        """Join the group among Kafka clients, from the first subscription on, if the Kafka port is open."""
        if self._coordinator is not None and self.group_member is None and self._is_subscribed:
            self.group_member = ProxyGroupMember(
                self._coordinator,
                self.name,
                subscriptions=self.subscriptions,
                count=self._sources.count,
                changed=self.distribute,
                prefixes=self.owner,
            )

    async def leave_kafka_group(self, *, always: bool = False) -> None:
        """Leave the group among Kafka clients after the last subscription has ended."""
        group_member = self.group_member
        if group_member is not None and (always or not self._is_subscribed):
            self.group_member = None
            await group_member.stop()

    @property
    def owner(self) -> tuple[str, ...]:
        """The prefixes of the key that created its first instance; (): a key for all topics, or no key."""
        first = next(iter(self.members.values()), None)
        return () if first is None else tuple(first.instance.prefixes)

    def topics(self) -> set[str]:
        """All topics that instances subscribe to or have partitions of."""
        found = {topic for member in self.members.values() for topic, _ in member.instance.positions}
        return found | self.subscriptions()

    @property
    def _is_subscribed(self) -> bool:
        return any(member.instance.subscribed for member in self.members.values())

    def subscriptions(self) -> set[str]:
        """All topics that members currently subscribe to."""
        subscribed = [member for member in self.members.values() if member.instance.subscribed]
        return {topic for member in subscribed for topic in member.topics(self._sources)}

    def _numbers(self, topic: str) -> Sequence[int]:
        """The partitions of a topic that this proxy distributes."""
        numbers = range(self._sources.count(topic))
        has = None if self.group_member is None else self.group_member.assigned
        return numbers if has is None else [number for number in numbers if (topic, number) in has]

    def leave(self, member: Member, partition: Partition) -> None:
        """Record that the next member begins where this one began, unless there is a commit."""
        began = member.began.get(partition, UNDEFINED)
        if began != UNDEFINED:
            self._released[partition] = min(began, self._released.get(partition, began))

    def begin(self, member: Member, partition: Partition) -> int:
        """The start position of a member that gets a partition. Raises TopicNotFound."""
        instance = member.instance
        committed = self._sources.committed(self.name, partition)
        if committed is not None and committed[0] >= 0:
            return committed[0]
        if partition in self._released:
            return self._released[partition]
        first, end = self._sources.bounds(partition)
        match instance.config.reset:
            case "none":
                return UNDEFINED
            case "latest" if instance.chosen is not None or partition[0] in instance.known:
                return end
            case _:
                return first


def count_of(engine: Engine, topic: str) -> int:
    """The number of partitions of a topic; 0 if it does not exist."""
    try:
        return engine.topic(topic).config.partitions
    except TopicNotFound:
        return 0
    except StorageError:
        return 0  # not a valid name of a topic
