"""Whether a group is for a key. Ids of groups have no prefixes: its topics tell whose a group is.

    topics of the group              a key with prefixes
    none yet                         it is for the key: nothing says whose it is
    one at least is for the key      it is for the key, which may delete it if all of them are for it
    others only                      the key neither sees it nor joins it, nor commits by its id

Topics are those that the group has committed offsets for; of a share group, its queues.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from broker.auth.access import Access
from broker.auth.scopes import READ, Scopes
from broker.kafka.cluster import may

if TYPE_CHECKING:
    from broker.kafka.call import Call


def is_for(access: Access, topics: Collection[str]) -> bool:
    """Whether a group with these topics is for a key."""
    return not access.prefixes or not topics or any(name.startswith(access.prefixes) for name in topics)


def reaches(call: Call, group_id: str, scopes: Scopes = READ) -> bool:
    """Whether the key has these scopes, and the group of consumers is for it."""
    access = call.access
    return may(access, scopes) and (not access.prefixes or is_for(access, call.broker.kafka_offsets.topics(group_id)))


def may_commit(call: Call, group_id: str, places: Iterable[tuple[str, int]]) -> bool:
    """The same for one who is no member; `places`: topics and partitions that it commits for."""
    offsets = call.broker.kafka_offsets
    # As a rule it has committed for one of them before, and the others need not be looked for.
    return any(
        may(call.access, READ, topic) and offsets.has(group_id, topic, partition) for topic, partition in places
    ) or reaches(call, group_id)


def listed(call: Call) -> Callable[[str], bool]:
    """Which groups of consumers are for the key, all of which are looked at once."""
    if not call.access.prefixes:
        return lambda _: True
    topics = call.broker.kafka_offsets.topics_of_all()
    return lambda group_id: is_for(call.access, topics.get(group_id, ()))
