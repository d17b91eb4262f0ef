"""The lag of groups, from committed offsets of all APIs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from broker.auth import narrowed
from broker.content import in_slices
from broker.kafka import GROUP_PREFIX, consumer_name, group_of
from broker.proxy.assignment import Partition
from broker.proxy.group_view import MemberView, group_view
from broker.proxy.v3 import Lag
from storage.records import address

if TYPE_CHECKING:
    from broker.proxy.node import ProxyNode
    from storage import Engine
    from storage.state import Topic

_NOBODY: Final = MemberView("", "", None, [])


async def groups(broker: ProxyNode, prefixes: tuple[str, ...]) -> list[str]:
    """All groups with members, or with committed offsets in topics that the caller may see, sorted."""
    engine = broker.engine
    found = {*broker.proxy.groups(), *broker.kafka_groups.known()}
    async for topic in in_slices(_topics(engine, prefixes)):
        for number in range(topic.config.partitions):
            part = engine.catalog.topics.get(address(topic.name, number))
            if part is not None:  # else it is in another cell
                found |= {group_of(each.name) or "" for each in part.log.consumers.named(GROUP_PREFIX, "")}
    if broker.cells is not None:
        await broker.kafka_offsets.look(None)
        of_all = broker.kafka_offsets.topics_of_all()
        found |= {group for group, topics in of_all.items() if not prefixes or _any_within(topics, prefixes)}
        found = {group for group in found if broker.cells.home(group) == broker.cells.me}
    return sorted(found - {""})


def _any_within(topics: Iterable[str], prefixes: tuple[str, ...]) -> bool:
    return any(topic.startswith(prefixes) for topic in topics)


async def lags(broker: ProxyNode, group: str, prefixes: tuple[str, ...]) -> list[Lag]:
    """The lags of the group's committed offsets, ordered by topic and partition."""
    engine, name = broker.engine, consumer_name(group)
    view = group_view(broker, group)
    owners = {} if view is None else view.owners()
    found: list[Lag] = []
    async for topic in in_slices(_topics(engine, prefixes)):
        for number in range(topic.config.partitions):
            part = engine.catalog.topics.get(address(topic.name, number))
            consumer = None if part is None else part.log.consumers.by_name.get(name or "")
            if part is not None and consumer is not None:
                log = part.log
                owner = owners.get((topic.name, number), _NOBODY)
                offset = engine.consumers.committed(address(topic.name, number), consumer.name).seq
                found.append(Lag(topic.name, number, offset, log.head, owner.id, owner.instance_id, owner.client_id))
    if broker.cells is not None:
        found += await _lags_elsewhere(broker, group, prefixes, owners)
        found.sort(key=lambda each: (each.topic, each.partition))
    return found


async def _lags_elsewhere(
    broker: ProxyNode, group: str, prefixes: tuple[str, ...], owners: Mapping[Partition, MemberView]
) -> list[Lag]:
    """Those in topics of other cells. Raises Unavailable."""
    topics, sources = broker.engine.catalog.topics, broker.proxy.sources
    found_all = await broker.kafka_offsets.find_all(group)
    committed = [each for each in found_all if not _is_counted(topics, each.topic, each.partition)]
    if prefixes:
        committed = [each for each in committed if each.topic.startswith(prefixes)]
    await sources.look(group, {each.topic for each in committed})
    found: list[Lag] = []
    for each in committed:
        partition = each.topic, each.partition
        owner = owners.get(partition, _NOBODY)
        _, end = sources.bounds(partition)
        found.append(Lag(*partition, each.offset, end, owner.id, owner.instance_id, owner.client_id))
    return found


def _topics(engine: Engine, prefixes: tuple[str, ...]) -> Iterator[Topic]:
    """The topics, from a copy of the list, because topics are created and deleted during the iteration."""
    named = engine.catalog.named
    found = [topic for prefix in narrowed(prefixes, "") for topic in named(prefix, "") if not topic.provisional]
    return iter(topic for topic in found if engine.catalog.topics.get(topic.name) is topic)


def _is_counted(topics: Mapping[str, Topic], topic: str, partition: int) -> bool:
    """Whether the topic and the partition are both in this cell."""
    return topic in topics and address(topic, partition) in topics
