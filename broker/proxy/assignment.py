"""Assigns partitions to the members of a group: Kafka's range assignor. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import TypeAlias

#: Topic and number.
Partition: TypeAlias = tuple[str, int]


def by_range(
    subscriptions: Mapping[str, Set[str]], partitions: Mapping[str, Sequence[int]]
) -> dict[str, set[Partition]]:
    """`subscriptions`: member → topics; `partitions`: topic → their numbers. Every partition has at most one owner.

    For each topic, its subscribers, in the order of their names, get ranges of consecutive partitions. The lengths
    differ by at most one, the longer ranges first. A topic that does not exist has no partitions.
    """
    owned: dict[str, set[Partition]] = {member: set() for member in subscriptions}
    for topic in sorted({topic for topics in subscriptions.values() for topic in topics}):
        members = sorted(member for member, topics in subscriptions.items() if topic in topics)
        numbers = partitions.get(topic, ())
        each, more = divmod(len(numbers), len(members))
        begin = 0
        for index, member in enumerate(members):
            end = begin + each + (index < more)
            owned[member].update((topic, number) for number in numbers[begin:end])
            begin = end
    return owned
