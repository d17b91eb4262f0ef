"""Committed offsets: the cursors of a group's consumers, one for each partition that it has committed for.

A committed offset is the next one to read, which equals the seq of the last record that is done. A commit is durable,
whatever the class of the topic, with its metadata and leader epoch. HTTP clients can see the consumer, read with it and
move it; the group's clients continue from there. As in Kafka, any number is accepted: a cursor that is negative or
beyond the head still decides which records are retained, and clients apply `auto.offset.reset`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.content import in_slices
from broker.kafka.errors import ErrorCode, code_of
from broker.kafka.names import GROUP_PREFIX, consumer_name, group_of
from broker.kafka.refusals import Refused
from storage import (
    ConsumerNotFound,
    InvalidRequest,
    LimitReached,
    NotMine,
    ShuttingDown,
    StorageError,
    TopicIncompatible,
    TopicNotFound,
    Unavailable,
)
from storage.records import address, split

if TYPE_CHECKING:
    from storage import Engine


#: The codes for errors of a commit: the first match counts.
_CODES: Final = (
    # Another node has the topic: the coordinator finds out at the next attempt.
    (NotMine, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    (TopicNotFound, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (LimitReached, ErrorCode.POLICY_VIOLATION),
    # A queue, or an ephemeral topic: committed offsets would outlive its records.
    ((TopicIncompatible, InvalidRequest), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (ShuttingDown, ErrorCode.NOT_COORDINATOR),
    (Unavailable, ErrorCode.COORDINATOR_NOT_AVAILABLE),
)
#: The most groups whose topics are cached. For keys with prefixes, every heartbeat needs them.
_MAX_REMEMBERED: Final = 10_000


class Committed(NamedTuple):
    """A committed offset."""

    topic: str
    partition: int
    offset: int
    metadata: str
    #: -1: none.
    leader_epoch: int = -1


class Offsets:
    """The offsets of all groups of an engine. `consumer_name` must accept the group ids."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        #: Cached results of `topics` by group, valid while no consumer is created or deleted.
        self._topics: dict[str, set[str]] = {}
        self._topics_of = -1

    async def commit(
        self, group_id: str, topic: str, partition: int, offset: int, metadata: str, leader_epoch: int = -1
    ) -> None:
        """Commit an offset, also a smaller one than before. Durable on return.

        Raises TopicNotFound, LimitReached, Unavailable; TopicIncompatible for a queue; InvalidRequest for an
        ephemeral topic or too much metadata.
        """
        where = self._partition_name(topic, partition)
        metadata_bytes = metadata.encode() if metadata else None
        epoch = leader_epoch if leader_epoch >= 0 else None
        await self._engine.consumers.commit_offset(where, _name(group_id), offset, metadata_bytes, leader_epoch=epoch)

    async def commit_in(self, group_id: str, generation: int, committed: Committed) -> None:
        """Commit an offset on behalf of a member of this generation. Durable on return. Raises as `commit`; Refused."""
        await self.commit(
            group_id,
            committed.topic,
            committed.partition,
            committed.offset,
            committed.metadata,
            committed.leader_epoch,
        )

    async def find(self, group_id: str, topic: str, partitions: Sequence[int]) -> list[Committed | None]:
        """The committed offset in each of these partitions; None: none, or no such partition. Raises Unavailable."""
        found: list[Committed | None] = []
        async for partition in in_slices(partitions):
            try:
                found.append(self.fetch(group_id, topic, partition))
            except TopicNotFound:
                found.append(None)
        return found

    async def find_all(self, group_id: str) -> list[Committed]:
        """All committed offsets of a group, ordered by topic and partition. Raises Unavailable."""
        return self.all(group_id)

    async def look(self, group_id: str | None) -> None:
        """Find out in which topics the group has offsets (None: each group), for the methods that do not wait. Here
        they always know. Raises Unavailable.
        """

    def fetch(self, group_id: str, topic: str, partition: int) -> Committed | None:
        """The committed offset; None: none. Raises TopicNotFound."""
        try:
            found = self._engine.consumers.committed(self._partition_name(topic, partition), _name(group_id))
        except (ConsumerNotFound, InvalidRequest, TopicIncompatible):  # the last: queues, which have no offsets
            return None
        epoch = -1 if found.leader_epoch is None else found.leader_epoch
        return Committed(topic, partition, found.seq, (found.metadata or b"").decode(), epoch)

    def all(self, group_id: str) -> list[Committed]:
        """All committed offsets of a group, ordered by topic and partition."""
        found = [self.fetch(group_id, *split(where)) for where in self._addresses(group_id)]
        return sorted(each for each in found if each is not None)

    def has_any(self, group_id: str) -> bool:
        return bool(self._addresses(group_id))

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether it has an offset for that partition."""
        name = consumer_name(group_id)
        found = self._engine.catalog.topics.get(address(topic, partition)) if partition >= 0 else None
        return found is not None and name in found.log.consumers.by_name

    def topics(self, group_id: str) -> set[str]:
        """The topics with committed offsets of a group."""
        changes = self._engine.catalog.consumer_changes
        if changes != self._topics_of or len(self._topics) >= _MAX_REMEMBERED:
            self._topics.clear()
            self._topics_of = changes
        found = self._topics.get(group_id)
        if found is None:
            found = self._topics[group_id] = {split(where)[0] for where in self._addresses(group_id)}
        return found

    def topics_of_all(self) -> dict[str, set[str]]:
        """The topics of all groups with committed offsets, by group id."""
        found: dict[str, set[str]] = {}
        for where, topic in self._engine.catalog.topics.items():
            for consumer in topic.log.consumers.named(GROUP_PREFIX):
                group_id = group_of(consumer.name)
                if group_id is not None:
                    found.setdefault(group_id, set()).add(split(where)[0])
        return found

    def groups(self) -> set[str]:
        """All groups with committed offsets."""
        return {*self.topics_of_all()}

    async def delete(self, group_id: str, topic: str, partition: int) -> bool:
        """Delete an offset; False: there was none. Durable on return. Raises TopicNotFound, Unavailable."""
        return await self._engine.consumers.delete(self._partition_name(topic, partition), _name(group_id))

    async def delete_all(self, group_id: str) -> None:
        """Delete all offsets of a group. Durable on return. Raises Unavailable."""
        for where in self._addresses(group_id):
            await self._engine.consumers.delete(where, _name(group_id))

    def _addresses(self, group_id: str) -> list[str]:
        name = consumer_name(group_id)
        topics = self._engine.catalog.topics
        return [where for where, topic in topics.items() if name in topic.log.consumers.by_name]

    def _partition_name(self, topic: str, partition: int) -> str:
        """The name of a partition. Raises TopicNotFound if it does not exist."""
        where = address(topic, partition)
        found = self._engine.catalog.topics.get(where) if partition >= 0 else None
        if found is None or found.provisional or "/" in topic:
            raise TopicNotFound(where)
        return where


def code_of_commit(error: Exception) -> ErrorCode:
    """The code for an error of a commit, or of the deletion of an offset."""
    if isinstance(error, Refused):
        return error.code
    if isinstance(error, StorageError) and error.code == NotMine.code:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE  # also as another cell's answer
    return next((code for kinds, code in _CODES if isinstance(error, kinds)), None) or code_of(error)


def _name(group_id: str) -> str:
    name = consumer_name(group_id)
    assert name is not None, "checked by the caller"
    return name
