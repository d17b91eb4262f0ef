"""Decides whether a key may use a group. The key's prefixes do not apply to group ids, so the group's topics decide.

    topics of the group              a key with prefixes
    all of them are for the key      the group is for it
    none                             it is for the key if the key has all prefixes of the key that made the group; if
                                     no maker is known, it is for any key, and the first one makes it
    otherwise                        the key neither sees the group nor joins it, nor commits by its id

A group's topics are those with committed offsets, those that its members subscribe to or are assigned, and those of
its REST Proxy instances; for a share group, its queues and those that its members subscribe to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from broker.auth import READ, Access, Forbidden, Scopes
from broker.kafka.cluster import may
from broker.kafka.names import group_of

if TYPE_CHECKING:
    from broker.kafka.call import Call
    from broker.kafka.node import Node


def is_for(access: Access, topics: Collection[str]) -> bool:
    """Whether a key is for all of these topics."""
    return not access.prefixes or all(name.startswith(access.prefixes) for name in topics)


def topics_of(broker: Node, group_id: str) -> set[str]:
    """All topics of a consumer group."""
    proxied = broker.proxy.groups().get(group_id)
    found = broker.kafka_offsets.topics(group_id) | broker.kafka_groups.topics(group_id)
    return found if proxied is None else found | proxied.topics()


def reaches_group(broker: Node, access: Access, group_id: str) -> bool:
    """Whether the key may use the consumer group."""
    return not access.prefixes or _is_whose(broker, access, group_id, topics_of(broker, group_id))


def require_group(broker: Node, access: Access, group_id: str) -> None:
    """Raises Forbidden if the key may not use the group."""
    if not reaches_group(broker, access, group_id):
        raise Forbidden("This key is not for all topics of that group.", name=group_id[:255])


def require_consumer(broker: Node, access: Access, consumer: str) -> None:
    """Raises Forbidden if the consumer belongs to a group that the key may not use."""
    group_id = group_of(consumer)
    if group_id is not None:
        require_group(broker, access, group_id)


def reaches(call: Call, group_id: str, scopes: Scopes = READ) -> bool:
    """Whether the key has these scopes and may use the consumer group."""
    return may(call.access, scopes) and reaches_group(call.broker, call.access, group_id)


def reaches_shares(call: Call, group_id: str) -> bool:
    """Whether the key may use the share group."""
    return not call.access.prefixes or is_for(call.access, call.broker.kafka_shares.topics(group_id))


def listed(broker: Node, access: Access) -> Callable[[str], bool]:
    """A test for the consumer groups that the key may use; it computes the topics of all groups once."""
    if not access.prefixes:
        return lambda _: True
    committed, proxied = broker.kafka_offsets.topics_of_all(), broker.proxy.groups()

    def is_listed(group_id: str) -> bool:
        topics = committed.get(group_id, set()) | broker.kafka_groups.topics(group_id)
        if group_id in proxied:
            topics |= proxied[group_id].topics()
        return _is_whose(broker, access, group_id, topics)

    return is_listed


def _is_whose(broker: Node, access: Access, group_id: str, topics: Collection[str]) -> bool:
    if topics:
        return is_for(access, topics)
    owner = broker.kafka_groups.owner(group_id)
    if owner is None:
        proxied = broker.proxy.groups().get(group_id)
        owner = None if proxied is None else proxied.owner
    return owner is None or (bool(owner) and is_for(access, owner))
