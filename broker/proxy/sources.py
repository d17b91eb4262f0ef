"""The topics that consumer instances read, and the offsets of their groups there: those of this engine."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from broker.proxy import offsets
from broker.proxy import polling as reading
from broker.proxy.membership import count_of

if TYPE_CHECKING:
    from broker.proxy.assignment import Partition
    from broker.proxy.polling import Limits, ProxyRead
    from broker.scheduling import Slots
    from storage import Engine


class Sources:
    """See the module. For other cells, `look` fetches the answers."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def look(self, group: str, topics: Collection[str], *, names: bool = False) -> None:
        """Find out about these topics, and the names of all if `names`, for the methods that do not wait. Raises
        Unavailable."""

    def names(self) -> Iterable[str]:
        """Of all topics."""
        return (topic.name for topic in self.engine.catalog.named("", "") if not topic.provisional)

    def count(self, topic: str) -> int:
        """The number of partitions of a topic; 0 if it does not exist."""
        return count_of(self.engine, topic)

    def keeps_offsets(self, topic: str) -> bool:
        """Whether a topic can have consumers. Raises TopicNotFound."""
        return offsets.keeps_offsets(self.engine, topic)

    def committed(self, group: str, partition: Partition) -> tuple[int, str] | None:
        """The group's committed offset and its metadata; None: nothing is committed. Raises TopicNotFound."""
        return offsets.committed(self.engine, group, partition)

    def bounds(self, partition: Partition) -> tuple[int, int]:
        """The first existing offset, and the next one to assign. Raises TopicNotFound."""
        return reading.bounds(self.engine, partition)

    async def commit(self, group: str, partition: Partition, offset: int, metadata: str | None = None) -> None:
        """Commit an offset. Durable on return. Raises as `offsets.commit`."""
        await offsets.commit(self.engine, group, partition, offset, metadata)

    async def read(self, positions: Mapping[Partition, int], limits: Limits, parking: Slots) -> ProxyRead:
        """Read these partitions. Raises as `polling.read`."""
        return await reading.read(self.engine, positions, limits, parking)
