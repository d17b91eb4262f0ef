"""The topics that consumer instances read in a set of cells: the instances are in the home cell of their group, which
asks the other cells for facts and records.

Source: docs/cells.md#kafka-clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from broker.kafka.spread import Owners, ask_others
from broker.proxy import offsets
from broker.proxy import polling as reading
from broker.proxy.polling import Limits, Lost, ProxyRead
from broker.proxy.records import Record
from broker.proxy.sources import Sources
from storage import NotMine, StorageError, TopicNotFound, Unavailable

if TYPE_CHECKING:
    from broker.kafka import Cells
    from broker.proxy.assignment import Partition
    from broker.scheduling import Slots
    from storage import Engine

FACTS: Final = "proxy_facts"
PARTS: Final = "proxy_parts"
NAMES: Final = "proxy_names"
READ: Final = "proxy_read"
COMMIT: Final = "proxy_commit"
#: A read of another cell may take this much longer than its own wait.
_GRACE_S: Final = 10.0
#: How long a read that does not wait for records waits for cells that answer later than another one.
_OTHERS_S: Final = 1.0
#: The most topics of other cells whose facts are cached.
_MAX_TOPICS: Final = 10_000

#: Of a partition: its bounds, the group's commit there with its metadata, and its cell.
_Part = tuple[int, int, tuple[int, str] | None, int]
#: Whether a topic keeps offsets; and its partitions.
_Facts = tuple[bool, list[_Part]]


class CellSources(Sources):
    """See the module."""

    def __init__(self, engine: Engine, cells: Cells) -> None:
        super().__init__(engine)
        self._cells = cells
        self._owners = Owners(cells)
        self._here = Sources(engine)
        self._facts: dict[tuple[str, str], _Facts] = {}
        self._topics: dict[str, _Facts] = {}
        self._names: list[str] = []
        cells.handlers.update(
            {
                FACTS: self._serve_facts,
                PARTS: self._serve_parts,
                NAMES: self._serve_names,
                READ: self._serve_read,
                COMMIT: self._serve_commit,
            }
        )

    def _is_here(self, topic: str) -> bool:
        """Whether the topic is in this cell with all its partitions."""
        found = self.engine.catalog.topics.get(topic)
        return self._cells.owner(topic) == self._cells.me and (found is None or found.placement is None)

    # -- for instances -------------------------------------------------------------------------------------------------

    async def look(self, group: str, topics: Collection[str], *, names: bool = False) -> None:
        async def at(topic: str) -> None:
            try:
                asked = [group, topic]
                is_here = self._cells.owner(topic) == self._cells.me
                answer: Any = await (self._serve_facts(asked) if is_here else self._owners.call(topic, FACTS, asked))
            except Unavailable:
                raise
            except StorageError:  # there is no such topic
                self._topics.pop(topic, None)
                self._facts.pop((group, topic), None)
                return
            keeps, parts = answer
            found: _Facts = keeps, [_part(*each) for each in parts]
            self._topics[topic] = self._facts[group, topic] = found

        if len(self._facts) >= _MAX_TOPICS:
            self._facts.clear()
            self._topics.clear()
        if names:
            answers = await ask_others(self._cells, NAMES, None)
            self._names = sorted(name for found in answers for name in found)
        await asyncio.gather(*(at(topic) for topic in topics if not self._is_here(topic)))

    def names(self) -> Iterable[str]:
        return [*super().names(), *self._names]

    def count(self, topic: str) -> int:
        if self._is_here(topic):
            return super().count(topic)
        found = self._topics.get(topic)
        return 0 if found is None else len(found[1])

    def keeps_offsets(self, topic: str) -> bool:
        return super().keeps_offsets(topic) if self._is_here(topic) else self._of(topic)[0]

    def committed(self, group: str, partition: Partition) -> tuple[int, str] | None:
        topic, number = partition
        if self._is_here(topic):
            return super().committed(group, partition)
        found = self._facts.get((group, topic))
        if found is None or number >= len(found[1]):
            raise TopicNotFound(topic)
        return found[1][number][2]

    def bounds(self, partition: Partition) -> tuple[int, int]:
        topic, number = partition
        if self._is_here(topic):
            return super().bounds(partition)
        parts = self._of(topic)[1]
        if number >= len(parts):
            raise TopicNotFound(topic)
        return parts[number][:2]

    def _of(self, topic: str) -> _Facts:
        found = self._topics.get(topic)
        if found is None:
            raise TopicNotFound(topic)
        return found

    async def commit(self, group: str, partition: Partition, offset: int, metadata: str | None = None) -> None:
        topic, number = partition
        cell = self._cells.cell_of(topic, number)
        if cell == self._cells.me:
            await super().commit(group, partition, offset, metadata)
        elif self._cells.owner(topic) == self._cells.me:
            await self._cells.peers.call(cell, COMMIT, [group, topic, number, offset, metadata])
        else:
            await self._owners.call(topic, COMMIT, [group, topic, number, offset, metadata])
        if not self._is_here(topic):
            self._note(group, partition, offset, metadata)

    def _note(self, group: str, partition: Partition, offset: int, metadata: str | None) -> None:
        """Update the facts: the next member may get the partition before another look."""
        topic, number = partition
        found = self._facts.get((group, topic))
        if found is not None and number < len(found[1]):
            first, end, _, cell = found[1][number]
            found[1][number] = first, end, (offset, metadata or ""), cell

    async def read(self, positions: Mapping[Partition, int], limits: Limits, parking: Slots) -> ProxyRead:
        """What all cells have now or, if there is nothing, what the first cell gets that gets anything."""
        by_cell: dict[int, dict[Partition, int]] = {}
        for partition, at in positions.items():
            by_cell.setdefault(self._cell_of(partition), {})[partition] = at
        if by_cell.keys() == {self._cells.me}:
            return await super().read(positions, limits, parking)
        share = limits._replace(
            max_bytes=max(1, limits.max_bytes // len(by_cell)), max_records=max(1, limits.max_records // len(by_cell))
        )
        with parking.hold():
            now = share._replace(timeout_ms=0)
            if share.timeout_ms and share.min_bytes > 1:
                return await self._read_cells(positions, by_cell, share)
            found = await self._read_cells(positions, by_cell, now, others_s=_OTHERS_S)
            if not found.empty or not share.timeout_ms:
                return found
            return await self._read_cells(positions, by_cell, share)

    async def _read_cells(
        self,
        positions: Mapping[Partition, int],
        by_cell: Mapping[int, dict[Partition, int]],
        limits: Limits,
        *,
        others_s: float = 0.0,
    ) -> ProxyRead:
        """The first cell that has records, or whose timeout has passed, ends the wait for the others; they get
        `others_s` more."""
        reads = [asyncio.ensure_future(self._read_at(cell, wanted, limits)) for cell, wanted in by_cell.items()]
        try:
            await _until_one_has_records(reads)
            if others_s:
                await asyncio.wait(reads, timeout=others_s)
        finally:
            for each in reads:
                each.cancel()
            await asyncio.gather(*reads, return_exceptions=True)
        merged = ProxyRead([], [], [], dict(positions), dict(positions))
        failures: list[BaseException] = []
        for each in reads:
            if each.cancelled():
                continue
            failure = each.exception()
            if failure is not None:
                failures.append(failure)
                continue
            found = each.result()
            merged.records.extend(found.records)
            merged.lost.extend(found.lost)
            merged.corrupt.extend(found.corrupt)
            for partition, at in found.positions.items():
                del merged.positions[partition]  # those read longest ago come first
                merged.positions[partition] = at
        if failures and merged.empty:
            raise failures[0]
        return merged

    def _cell_of(self, partition: Partition) -> int:
        topic, number = partition
        known = self._topics.get(topic)
        if not self._is_here(topic) and known is not None and number < len(known[1]):
            return known[1][number][3]
        return self._owners.cell_of(topic)

    async def _read_at(self, cell: int, positions: Mapping[Partition, int], limits: Limits) -> ProxyRead:
        if cell == self._cells.me:
            return await super().read(positions, limits, reading.Streaming())
        asked = [[topic, number, at] for (topic, number), at in positions.items()]
        timeout_s = limits.timeout_ms / 1000 + _GRACE_S
        answer = await self._cells.peers.call(cell, READ, [asked, list(limits)], timeout_s=timeout_s)
        records, lost, corrupt, moved = answer
        return ProxyRead(
            [_record(*row) for row in records],
            [Lost((topic, number), begin, end, reason) for (topic, number), begin, end, reason in lost],
            [((topic, number), offset) for (topic, number), offset in corrupt],
            {(topic, number): at for topic, number, at in moved},
            dict(positions),
        )

    # -- for other cells -----------------------------------------------------------------------------------------------

    async def _serve_facts(self, argument: Any) -> _Facts:
        group, topic = argument
        self._require(topic)
        count = self._here.count(topic)
        if not count:
            raise TopicNotFound(topic)
        by_cell: dict[int, list[int]] = {}
        for number in range(count):
            by_cell.setdefault(self._cells.cell_of(topic, number), []).append(number)
        parts: dict[int, _Part] = {}
        for cell, numbers in by_cell.items():
            asked = [group, topic, numbers]
            if cell == self._cells.me:
                found = await self._serve_parts(asked)
            else:
                found = await self._cells.peers.call(cell, PARTS, asked)
            parts |= {number: _part(*each) for number, each in zip(numbers, found, strict=True)}
        return self._here.keeps_offsets(topic), [parts[number] for number in range(count)]

    async def _serve_parts(self, argument: Any) -> list[_Part]:
        """The facts about partitions of this cell."""
        group, topic, numbers = argument
        return [
            (*self._here.bounds((topic, each)), self._committed_here(group, (topic, each)), self._cells.me)
            for each in numbers
        ]

    def _committed_here(self, group: str, partition: Partition) -> tuple[int, str] | None:
        return offsets.committed(self.engine, group, partition) if group else None

    async def _serve_names(self, argument: object) -> list[str]:
        return [*self._here.names()]

    async def _serve_read(self, argument: Any) -> list[Any]:
        asked, limits = argument
        positions = {(topic, number): at for topic, number, at in asked}
        found = await self._here.read(positions, Limits(*limits), reading.Streaming())
        moved = [[topic, number, at] for (topic, number), at in found.positions.items()]
        return [found.records, found.lost, found.corrupt, moved]

    async def _serve_commit(self, argument: Any) -> None:
        group, topic, number, offset, metadata = argument
        cell = self._cells.cell_of(topic, number)
        if cell != self._cells.me:
            self._require(topic)
            await self._cells.peers.call(cell, COMMIT, argument)
            return
        await offsets.commit(self.engine, group, (topic, number), offset, metadata)

    def _require(self, topic: str) -> None:
        if self._cells.owner(topic) != self._cells.me:
            raise NotMine(topic, self._cells.owner(topic))


def _part(first: int, end: int, committed: Sequence[Any] | None, cell: int) -> _Part:
    return first, end, None if committed is None else (committed[0], committed[1]), cell


def _record(
    topic: str, partition: int, offset: int, key: bytes | None, value: bytes | None, headers: list[Any], ts: int
) -> Record:
    return Record(topic, partition, offset, key, value, [(name, text) for name, text in headers], ts)


async def _until_one_has_records(reads: Collection[asyncio.Future[ProxyRead]]) -> None:
    """Wait until one of them has records or has failed, or until all have ended."""
    left = set(reads)
    while left:
        done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        if any(each.exception() is not None or not each.result().empty for each in done):
            return
