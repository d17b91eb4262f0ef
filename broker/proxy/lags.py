"""Groups and how far they are: of everything that is committed, whoever did it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from broker.auth.scopes import narrowed
from broker.kafka.names import GROUP_PREFIX, consumer_name, group_of
from broker.proxy.v3 import Lag
from storage.partitions import address

if TYPE_CHECKING:
    from broker.proxy.instances import Instances
    from broker.proxy.membership import Group
    from storage.catalog import Topic
    from storage.engine import Engine

#: Topics looked at before others have their turn on the loop.
_TURN: Final = 1000


async def groups(engine: Engine, instances: Instances, prefixes: tuple[str, ...]) -> list[str]:
    """All groups with instances, or commits in topics that a caller may know of, sorted."""
    found = set(instances.groups())
    for count, topic in enumerate(_topics(engine, prefixes)):
        for number in range(topic.config.partitions):
            for consumer in engine.catalog.topics[address(topic.name, number)].log.consumers.named(GROUP_PREFIX, ""):
                found.add(group_of(consumer.name) or "")
        if count % _TURN == _TURN - 1:
            await asyncio.sleep(0)
    return sorted(found - {""})


async def lags(engine: Engine, instances: Instances, group: str, prefixes: tuple[str, ...]) -> list[Lag]:
    """By topic and partition, of what the group has committed."""
    name = consumer_name(group)
    members = instances.groups().get(group)
    owners = {} if members is None else _owners(members)
    found: list[Lag] = []
    for count, topic in enumerate(_topics(engine, prefixes)):
        for number in range(topic.config.partitions):
            log = engine.catalog.topics[address(topic.name, number)].log
            consumer = log.consumers.by_name.get(name or "")
            if consumer is not None:
                owner = owners.get((topic.name, number), "")
                offset = engine.consumers.committed(address(topic.name, number), consumer.name).seq
                found.append(Lag(topic.name, number, offset, log.head, owner))
        if count % _TURN == _TURN - 1:
            await asyncio.sleep(0)
    return found


def _topics(engine: Engine, prefixes: tuple[str, ...]) -> Iterator[Topic]:
    """A list made at once: topics come and go while it is gone through."""
    named = engine.catalog.named
    found = [topic for prefix in narrowed(prefixes, "") for topic in named(prefix, "") if not topic.provisional]
    return iter(topic for topic in found if engine.catalog.topics.get(topic.name) is topic)


def _owners(group: Group) -> dict[tuple[str, int], str]:
    return {each: name for name, member in group.members.items() for each in member.instance.positions}
