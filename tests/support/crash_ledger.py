"""What a workload was told: every write, delete and change of a topic with its outcome. Directories are compared with
it.

`crash_session.Session` fills a ledger while a workload runs. `crash_check.check` reads it after a crash and updates it:
an outcome that the crash left open is closed by what was found. Copies are independent.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from storage import Durability, NewRecord, Retention, TopicConfig


class Outcome(StrEnum):
    """What the caller knows of an operation. OPEN: nothing yet; it may have happened as a whole, or not."""

    OPEN = "open"
    DONE = "done"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class SentRecord:
    """A record as it was sent. No two records of a ledger have the same data."""

    data: bytes
    meta: bytes | None = None
    tag: str | None = None
    node: str | None = None

    @property
    def body(self) -> bytes:
        """Its stored body, byte for byte."""
        return b'{"data":%b}' % self.data if self.meta is None else b'{"data":%b,"meta":%b}' % (self.data, self.meta)

    @property
    def size_bytes(self) -> int:
        return len(self.data) + len(self.meta or b"")

    def new(self) -> NewRecord:
        """In the form that the engine takes."""
        meta = None if self.meta is None else msgspec.Raw(self.meta)
        return NewRecord(msgspec.Raw(self.data), meta=meta, tag=self.tag, node=self.node)


@dataclass(slots=True, eq=False)
class Write:
    """One append. `safe`: known to be on the disk for good, whatever its class promised."""

    number: int
    durability: Durability
    records: tuple[SentRecord, ...]
    key: str | None = None
    outcome: Outcome = Outcome.OPEN
    first_seq: int = 0
    safe: bool = False
    lost: bool = False

    @property
    def seqs(self) -> range:
        """The seqs of an acked write; empty for any other."""
        return range(self.first_seq, self.first_seq + len(self.records)) if self.first_seq else range(0)

    def ack(self, first_seq: int) -> None:
        self.outcome = Outcome.DONE
        self.first_seq = first_seq


@dataclass(slots=True, eq=False)
class Removal:
    """One delete_records, of the matching records up to `bound_seq`."""

    durability: Durability
    bound_seq: int
    before_seq: int | None = None
    tag: str | None = None
    outcome: Outcome = Outcome.OPEN
    safe: bool = False

    def takes(self, seq: int, tag: str | None) -> bool:
        """Whether it deletes this record."""
        if seq > self.bound_seq or (self.before_seq is not None and seq >= self.before_seq):
            return False
        return self.tag is None or tag == self.tag


@dataclass(slots=True, eq=False)
class Setting:
    """One config that a topic was given."""

    config: TopicConfig
    outcome: Outcome = Outcome.OPEN


@dataclass(slots=True, eq=False)
class Reading:
    """A consumer. `upto_seq`: its cursor may be up to here, but no further."""

    name: str
    upto_seq: int = 0
    made: Outcome = Outcome.OPEN
    #: None = nobody has requested it.
    deleted: Outcome | None = None
    #: The cursor was moved back, so it may be where records are gone.
    sought: bool = False

    @property
    def certain(self) -> bool:
        """Whether it exists, whatever becomes of operations in progress."""
        return self.made is Outcome.DONE and self.deleted in (None, Outcome.REFUSED)

    @property
    def possible(self) -> bool:
        return self.made is not Outcome.REFUSED and self.deleted is not Outcome.DONE


@dataclass(slots=True, eq=False)
class Life:
    """A topic from its creation to its deletion. One name can have several, one after another."""

    name: str
    made: Outcome = Outcome.OPEN
    #: The outcome of its creation is open: until the next start it does not exist, and its name is free.
    adrift: bool = False
    #: None = nobody has requested it.
    deleted: Outcome | None = None
    topic_id: int = 0
    epoch: int = 0
    settings: list[Setting] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    removals: list[Removal] = field(default_factory=list)
    #: Seqs that a reader was told were lost in a crash.
    announced: set[int] = field(default_factory=set)
    readings: list[Reading] = field(default_factory=list)
    #: Records up to here may be gone because all consumers had passed them.
    consumed_to: int = 0

    @property
    def durability(self) -> Durability:
        """The class of the last requested config that was not refused."""
        taken = [setting for setting in self.settings if setting.outcome is not Outcome.REFUSED]
        return (taken or self.settings)[-1].config.durability

    @property
    def ever_bounded(self) -> bool:
        """Whether records may have gone because of a cap or the ttl."""
        configs = [setting.config for setting in self.settings]
        return any(config.cap_records or config.most_bytes or config.ttl_ms for config in configs)

    @property
    def ever_ephemeral(self) -> bool:
        """Whether records may have been in memory only."""
        return any(setting.config.durability is Durability.EPHEMERAL for setting in self.settings)

    @property
    def ever_consumed(self) -> bool:
        """Whether records may have gone because consumers had passed them."""
        return any(setting.config.retention is Retention.CONSUMED for setting in self.settings)

    def reading(self, name: str) -> Reading | None:
        """The consumer of that name, as far as the workload knows."""
        return next((each for each in reversed(self.readings) if each.name == name and each.possible), None)

    def note_consumed(self) -> None:
        """Given the present state, records up to the cursor of the slowest consumer that certainly exists may go."""
        if self.ever_consumed:
            certain = [each.upto_seq for each in self.readings if each.certain]
            possible = [each.upto_seq for each in self.readings if each.possible]
            upto_seq = min(certain) if certain else max(possible, default=0)
            self.consumed_to = max(self.consumed_to, upto_seq)

    @property
    def ever_unsynced(self) -> bool:
        """Whether it ever had a class that may lose acked writes."""
        return any(setting.config.durability is not Durability.FSYNC for setting in self.settings)

    def configs_allowed(self) -> list[TopicConfig]:
        """The last acked config, and every later one whose outcome is open."""
        allowed: list[TopicConfig] = []
        for setting in reversed(self.settings):
            if setting.outcome is not Outcome.REFUSED:
                allowed.append(setting.config)
            if setting.outcome is Outcome.DONE:
                break
        return allowed

    def acked(self) -> Iterator[tuple[int, Write, SentRecord]]:
        """(seq, write, record) of everything acked and not found lost since."""
        for write in self.writes:
            if write.outcome is Outcome.DONE:
                yield from ((seq, write, record) for seq, record in zip(write.seqs, write.records, strict=True))

    def all_safe(self) -> None:
        """What was acked so far can no longer be lost, except for what is in memory only."""
        volatile = self.durability is Durability.EPHEMERAL
        for each in (*self.writes, *self.removals):
            if each.outcome is Outcome.DONE and not (volatile and each.durability is Durability.EPHEMERAL):
                each.safe = True


class Ledger:
    """All lives of all topics, in the order in which they began."""

    def __init__(self) -> None:
        self.lives: list[Life] = []
        self._writes = 0

    def copy(self) -> Ledger:
        return copy.deepcopy(self)

    def live(self, name: str) -> Life | None:
        """The topic of that name, as far as the workload knows."""
        for life in reversed(self.lives):
            if life.name == name:
                gone = life.made is Outcome.REFUSED or life.deleted is Outcome.DONE or life.adrift
                return None if gone else life
        return None

    def begin(self, name: str, config: TopicConfig) -> Life:
        """Called before this topic is created."""
        life = Life(name, settings=[Setting(config)])
        self.lives.append(life)
        return life

    def records(self, count: int, *, size: int, tag: str | None, meta: bool) -> tuple[int, tuple[SentRecord, ...]]:
        """(number, records) of a new write. The data names the write and the index, and is padded to about `size`
        bytes."""
        self._writes += 1
        number = self._writes
        made: list[SentRecord] = []
        for index in range(count):
            data = b'{"w":%d,"i":%d,"p":"%b"}' % (number, index, b"." * max(0, size - 24))
            made.append(
                SentRecord(
                    data,
                    meta=b'{"n": %d}' % index if meta and index % 2 else None,
                    tag=tag,
                    node=f"node-{number % 3}" if meta else None,
                )
            )
        return number, tuple(made)
