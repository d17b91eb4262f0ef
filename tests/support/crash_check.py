"""Compares a reopened engine with the ledger of what was promised before the crash.

What each class promises (docs/reference/guarantees.md), and so what is checked:

    fsync       every acked record is there, byte for byte, whatever happened
    disk        the same after the death of the process; after a power loss what is missing is announced (crash)
    memory      as disk
    ephemeral   what was appended in that class is announced as lost after any restart
    all         a record read was sent, and stands at the seq its ack named; no seq acked is given to another record;
                a batch is there as a whole or not at all; acked topics, configs and deletions stay
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from storage import Durability, Engine, StoredRecord
from storage.records.partitions import split
from tests.support.crash_consumers import check_consumers
from tests.support.crash_ledger import Ledger, Life, Outcome, Removal, SentRecord, Write
from tests.support.crash_view import TopicView, view


class End(StrEnum):
    """How the process before ended."""

    KILL = "kill"
    POWER = "power"


@dataclass(frozen=True, slots=True)
class Ending:
    """`orderly`: it had started completely and no shard had stopped, so a kill leaves no gap in any seqs."""

    end: End
    orderly: bool = True


async def check(engine: Engine, ledger: Ledger, ending: Ending) -> list[str]:
    """What is wrong; empty if all promises were kept. Operations that the ledger has open are closed by what was
    found."""
    found = await view(engine)
    problems = [problem for each in found.values() for problem in each.problems]
    expected: set[str] = set()
    for name in {life.name: None for life in ledger.lives}:
        lives = [life for life in ledger.lives if life.name == name]
        there = _settle_lives(lives, found.get(name), problems)
        if there is not None:
            expected.add(name)
            problems += check_consumers(engine, there)
            problems += _Comparison(there, found[name], ending, gaps=engine.report.discarded_bytes > 0).run()
    problems += [f"{name} is there, and nobody has made it (any more)" for name in sorted(set(found) - expected)]
    return problems


def _settle_lives(lives: list[Life], found: TopicView | None, problems: list[str]) -> Life | None:
    """Which life of a name was found. The others are over for good."""
    there: Life | None = None
    if found is not None:
        there = next((life for life in lives if life.topic_id == found.state.topic_id), None)
        if there is None:
            open_lives = [life for life in lives if not life.topic_id and life.made is Outcome.OPEN]
            fitting = [life for life in open_lives if found.state.config in life.configs_allowed()]
            there = next(iter(fitting or open_lives), None)
        if there is not None and there.deleted is Outcome.DONE:
            problems.append(f"{there.name}: its deletion was acked, and it is there again")
    for life in lives:
        if life is there:
            if not life.topic_id:
                life.topic_id, life.epoch = found.state.topic_id, found.state.epoch
            life.made, life.deleted, life.adrift = Outcome.DONE, None, False
            continue
        if life.made is Outcome.DONE and life.deleted is None:
            problems.append(f"{life.name} (topic {life.topic_id}) is gone, and nobody has deleted it")
        if life.made is Outcome.DONE:
            life.deleted = Outcome.DONE
        else:
            life.made = Outcome.REFUSED
    return there


class _Comparison:
    """Compare one topic with its ledger."""

    def __init__(self, life: Life, found: TopicView, ending: Ending, *, gaps: bool) -> None:
        self.life = life
        self.found = found
        self.ending = ending
        self.gaps = gaps
        self.sent = {record.data: (write, index) for write in life.writes for index, record in enumerate(write.records)}
        self.at = {record.seq: record for record in found.records}
        self.problems: list[str] = []

    def run(self) -> list[str]:
        self._config()
        present = self._records()
        self._known_first_seqs(present)
        for write in self.life.writes:
            self._write(write, present.get(write.number, {}))
        self._holes()
        self._head()
        self._removals()
        self._remember(present)
        return [f"{self.life.name}: {problem}" for problem in self.problems]

    def _config(self) -> None:
        state = self.found.state
        allowed = self.life.configs_allowed()
        if state.config not in allowed:
            self.problems.append(f"has a config nobody gave it last: {state.config}")
        if state.epoch != self.life.epoch:
            self.problems.append(f"epoch {state.epoch}, was {self.life.epoch}")
        for setting in self.life.settings:
            if setting.outcome is Outcome.OPEN:
                setting.outcome = Outcome.DONE if setting.config == state.config else Outcome.REFUSED
        config = state.config
        if config.cap_records and state.count > config.cap_records:
            self.problems.append(f"holds {state.count} records, its cap is {config.cap_records}")
        if config.most_bytes and state.bytes > config.most_bytes:
            self.problems.append(f"holds {state.bytes} bytes, {config.most_bytes} may be")
        size = sum(len(data) + len(meta or b"") for data, meta in map(parts_of, self.found.records))
        if state.bytes != size:
            self.problems.append(f"says it holds {state.bytes} bytes, its records have {size}")

    def _records(self) -> dict[int, dict[int, int]]:
        """Every record found was sent. Returns write number -> index in it -> seq."""
        present: dict[int, dict[int, int]] = {}
        for record in self.found.records:
            origin = self.sent.get(parts_of(record)[0])
            if origin is None:
                self.problems.append(f"record {record.seq} was never sent: {record.body!r}")
                continue
            write, index = origin
            self._same(record, write.records[index])
            if write.outcome is Outcome.REFUSED:
                self.problems.append(f"record {record.seq} was refused (write {write.number})")
            if index in present.setdefault(write.number, {}):
                self.problems.append(f"record {record.seq} is there twice (write {write.number})")
            present[write.number][index] = record.seq
        return present

    def _same(self, record: StoredRecord, sent: SentRecord) -> None:
        stored = (record.body, record.tag, record.node)
        wanted = (sent.body, (sent.tag or "").encode(), (sent.node or "").encode())
        if stored != wanted:
            self.problems.append(f"record {record.seq} is {stored}, sent was {wanted}")

    def _known_first_seqs(self, present: dict[int, dict[int, int]]) -> None:
        """The seqs of a write are consecutive, from the one that its ack named."""
        for write in self.life.writes:
            starts = {seq - index for index, seq in present.get(write.number, {}).items()}
            if len(starts) > 1:
                self.problems.append(f"write {write.number} is torn apart: it starts at {sorted(starts)}")
            elif starts and write.outcome is Outcome.DONE and starts != {write.first_seq}:
                self.problems.append(f"write {write.number} was acked at {write.first_seq}, is at {min(starts)}")
            elif starts and write.outcome is Outcome.OPEN:
                write.ack(starts.pop())

    def _write(self, write: Write, present: dict[int, int]) -> None:
        missing = [index for index in range(len(write.records)) if index not in present]
        if not missing:
            return
        if write.outcome is not Outcome.DONE:
            write.outcome = Outcome.REFUSED  # from here on it must never appear
            return
        explained = [self._why_gone(write.first_seq + index, write.records[index]) for index in missing]
        by_crash = explained.count("crash")
        for index, why in zip(missing, explained, strict=True):
            if why is None:
                self.problems.append(
                    f"record {write.first_seq + index} ({write.durability}, acked) is missing, and nothing says why"
                )
        if by_crash and present:
            self.problems.append(f"write {write.number} is there in part: {by_crash} of its records went in the crash")
        if by_crash and not self._may_lose(write):
            self.problems.append(f"acked write {write.number} ({write.durability}) at {write.first_seq} was lost")
        # In a mixed range nobody knows which records went in the crash and which by a cap or ttl.
        write.lost = write.lost or by_crash > 0 or ("mixed" in explained and self._may_lose(write))

    def _may_lose(self, write: Write) -> bool:
        if write.lost:
            return True  # and announced before
        if write.safe:
            return False
        if write.durability is Durability.EPHEMERAL:
            return True
        return write.durability is not Durability.FSYNC and self.ending.end is End.POWER

    def _why_gone(self, seq: int, record: SentRecord) -> str | None:
        tombstone = self.found.tombstone_over(seq)
        if tombstone is not None and tombstone.reason == "crash":
            return "crash"  # records that were to be deleted: with a deletion in the log there is no loss to announce
        if any(removal.takes(seq, record.tag) for removal in self._removals_possible()):
            return "deleted"
        if tombstone is None:
            return "consumed" if seq <= self.life.consumed_to else None
        if tombstone.reason in ("cap", "ttl", "mixed") and self.life.ever_bounded:
            return tombstone.reason
        return None

    def _removals_possible(self) -> Iterator[Removal]:
        return (removal for removal in self.life.removals if removal.outcome is not Outcome.REFUSED)

    def _holes(self) -> None:
        """A seq that is not there was lost and announced, or was deleted."""
        known = {seq: record for seq, _, record in self.life.acked()}
        for seq in range(1, self.found.state.head_seq + 1):
            if seq in self.at or self.found.tombstone_over(seq) or seq in known or seq <= self.life.consumed_to:
                continue
            if not any(removal.takes(seq, removal.tag) for removal in self._removals_possible()):
                self.problems.append(f"seq {seq} is a hole that nothing explains")

    def _head(self) -> None:
        life, head = self.life, self.found.state.head_seq
        highest = max((seq for seq, _, _ in life.acked()), default=0)
        if head < highest:
            self.problems.append(f"head_seq is {head}, but {highest} was handed out: it will be again")
        for seq, write, _ in life.acked():
            record = self.at.get(seq)
            origin = self.sent.get(parts_of(record)[0]) if record else None
            if origin is not None and origin[0] is not write:
                self.problems.append(f"seq {seq} was handed out twice: writes {write.number} and {origin[0].number}")
        crashed = self._crashed()
        if crashed and not life.ever_unsynced:
            self.problems.append(f"seqs {min(crashed)} to {max(crashed)} are announced as lost, of class fsync")
        contiguous = self.ending.end is End.KILL and self.ending.orderly and not self.gaps
        # A partition that follows partition 0 only after the start loses what was in its memory.
        volatile = life.ever_ephemeral if split(life.name)[1] else life.durability is Durability.EPHEMERAL
        if contiguous and not volatile and crashed - life.announced:
            self.problems.append(f"a killed process lost seqs {sorted(crashed - life.announced)[:9]}")
        if life.announced - crashed and not life.ever_bounded and not life.removals:
            self.problems.append(f"losses once announced are not any more: {sorted(life.announced - crashed)[:9]}")

    def _crashed(self) -> set[int]:
        return {
            seq
            for each in self.found.tombstones
            if each.reason == "crash"
            for seq in range(each.gap_from, each.gap_to + 1)
        }

    def _removals(self) -> None:
        for removal in self.life.removals:
            there = [
                record.seq for record in self.found.records if removal.takes(record.seq, record.tag.decode() or None)
            ]
            stays = removal.safe or self.ending.end is End.KILL
            if removal.outcome is Outcome.DONE and stays and there:
                self.problems.append(f"records {there} were deleted, acked, and are there again")
            if removal.outcome is Outcome.OPEN or (removal.outcome is Outcome.DONE and not stays):
                removal.outcome = Outcome.REFUSED if there else removal.outcome

    def _remember(self, present: dict[int, dict[int, int]]) -> None:
        """Recovery has made durable what it found, so nothing of it may be lost from now on."""
        for write in self.life.writes:
            if write.number in present:
                write.safe = True
        for removal in self.life.removals:
            removal.safe = removal.outcome is Outcome.DONE
        self.life.announced |= self._crashed()


def parts_of(record: StoredRecord) -> tuple[bytes, bytes | None]:
    """(data, meta) of a stored body."""
    body = record.body.removeprefix(b'{"data":').removesuffix(b"}")
    data, separator, meta = body.partition(b',"meta":')
    return data, meta if separator else None
