"""Finds the partition of a request.

Source: docs/reference/api.md#partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from broker.service.predicates import check_topic_name
from storage import InvalidRequest, NotReady
from storage.records import address

if TYPE_CHECKING:
    from storage import Engine
    from storage.records import PartitionStates, TopicState


class PartitionState(msgspec.Struct, kw_only=True):
    """The state of a partition: the fields of `TopicState` that each partition has."""

    partition: int
    epoch: int
    head_seq: int
    earliest_seq: int
    next_seq: int
    count: int
    bytes: int
    last_write_ts: int | None


def at(engine: Engine, topic: str, partition: int | None, field: str = "partition") -> str:
    """The name of a partition in the engine; None means 0.

    Raises InvalidRequest for a partition that does not exist, and TopicNotFound, but only for numbers above 0.
    """
    check_topic_name(topic)
    if not partition:
        return topic
    if (where := address(topic, partition)) in engine.catalog.topics:
        return where
    there = engine.partitions(topic)
    if partition >= there:
        raise InvalidRequest(f"{field}: {topic} has {there}, counted from 0.", field=field)
    return address(topic, partition)


class OfflinePartition(msgspec.Struct, kw_only=True):
    """A partition whose cell is away."""

    partition: int
    cell: int


async def states(engine: Engine, topic: str, *, complete: bool) -> PartitionStates:
    """The states of the partitions of a topic. Raises TopicNotFound; with `complete`, NotReady if one is offline."""
    found = (await engine.states_of([topic]))[0]
    if complete:
        for partition, cell in found.offline.items():
            raise NotReady(
                f"Partition {partition} of {topic} is in cell {cell}, which cannot be reached now.",
                cell=cell,
                outcome=NotReady.outcome,
            )
    return found


def offline(found: PartitionStates) -> list[OfflinePartition]:
    """The partitions that an answer names as offline."""
    return [OfflinePartition(partition=partition, cell=cell) for partition, cell in found.offline.items()]


def figures(found: PartitionStates) -> list[PartitionState]:
    """The states that an answer shows."""
    return [
        PartitionState(
            partition=partition,
            epoch=state.epoch,
            head_seq=state.head_seq,
            earliest_seq=state.earliest_seq,
            next_seq=state.next_seq,
            count=state.count,
            bytes=state.bytes,
            last_write_ts=state.last_write_ts,
        )
        for partition, state in found.states.items()
    ]


def summed(found: PartitionStates) -> TopicState:
    """The state of partition 0, with the counts of all partitions that are not offline, and the latest times."""
    states = [*found.states.values()]
    first = states[0]
    return msgspec.structs.replace(
        first,
        count=sum(state.count for state in states),
        bytes=sum(state.bytes for state in states),
        last_write_ts=max((state.last_write_ts for state in states if state.last_write_ts is not None), default=None),
        last_read_ts=max((state.last_read_ts for state in states if state.last_read_ts is not None), default=None),
    )
