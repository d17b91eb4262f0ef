"""Everything that a reader of an engine can learn. Two recoveries are compared by it, and ledgers too."""

from __future__ import annotations

from dataclasses import dataclass

from storage import Engine, ReadQuery, StoredRecord, Tombstone, TopicState
from storage.records.partitions import address, split

PAGE = 7


@dataclass(frozen=True, slots=True)
class TopicView:
    """One topic, read from its first seq to its head."""

    state: TopicState
    records: tuple[StoredRecord, ...]
    tombstones: tuple[Tombstone, ...]
    problems: list[str]

    def tombstone_over(self, seq: int) -> Tombstone | None:
        """The tombstone or floor that announces that `seq` is gone."""
        for each in self.tombstones:
            if each.gap_from <= seq <= each.gap_to:
                return each
        return None


async def view(engine: Engine) -> dict[str, TopicView]:
    """All partitions by address."""
    states = engine.topics(limit=1_000_000)
    addresses = [address(state.topic, p) for state in states for p in range(engine.partitions(state.topic))]
    found = {each: await view_of_partition(engine, each) for each in addresses}
    for each, seen in found.items():
        if not any(shard.log.full for shard in engine.shards):  # otherwise they follow partition 0 when there is room
            seen.problems.extend(_disagreements(found, each, engine.partitions(split(each)[0])))
    return found


def _disagreements(found: dict[str, TopicView], one: str, partitions: int) -> list[str]:
    """Where a partition differs from partition 0."""
    name, partition = split(one)
    first, here = found[name].state.config, found[one].state.config
    problems: list[str] = []
    if here != first:
        problems.append(f"{one}: its config is {here}, that of partition 0 {first}")
    if first.partitions != partitions or partition >= partitions:
        problems.append(f"{one}: there are {partitions} partitions, partition 0 counts {first.partitions}")
    return problems


async def view_of_partition(engine: Engine, name: str) -> TopicView:
    records: list[StoredRecord] = []
    tombstones: list[Tombstone] = []
    problems: list[str] = []
    cursor, head = 0, engine.state(name).head_seq
    while cursor < head:
        result = await engine.read(name, ReadQuery(from_seq=cursor, limit=PAGE, max_bytes=1 << 30))
        if result.tombstone is not None:
            tombstones.append(result.tombstone)
        records += result.records
        if result.next_from_seq <= cursor:
            problems.append(f"{name}: a read from {cursor} does not get on, the head is {head}")
            break
        cursor = result.next_from_seq
    state = engine.state(name)
    state.last_read_ts = None  # reading changes it
    problems += _inconsistencies(state, records, tombstones)
    return TopicView(state, tuple(records), tuple(tombstones), problems)


def _inconsistencies(state: TopicState, records: list[StoredRecord], tombstones: list[Tombstone]) -> list[str]:
    """Where the state of a topic differs from its content."""
    name = state.topic
    problems: list[str] = []
    seqs = [record.seq for record in records]
    if seqs != sorted(set(seqs)):
        problems.append(f"{name}: seqs do not rise: {seqs}")
    stamps = [record.ts for record in records]
    if stamps != sorted(stamps):
        problems.append(f"{name}: ts goes backwards: {stamps}")
    if state.count != len(records):
        problems.append(f"{name}: count says {state.count}, {len(records)} records can be read")
    earliest = seqs[0] if seqs else state.head_seq + 1
    if state.earliest_seq != earliest:
        problems.append(f"{name}: earliest_seq says {state.earliest_seq}, the first record read is {earliest}")
    if seqs and seqs[-1] > state.head_seq:
        problems.append(f"{name}: record {seqs[-1]} is beyond head_seq {state.head_seq}")
    lost = {seq for each in tombstones for seq in range(each.gap_from, each.gap_to + 1)}
    if lost & set(seqs):
        problems.append(f"{name}: both lost and there: {sorted(lost & set(seqs))}")
    return problems
