"""What clients asked of a broker and what they were told. The state after a restart is compared with it.

The data of every record names its write and its index, so that whatever a broker serves can be traced back to its
request, its time and its answer. "Ticks" order requests and answers as the clients saw them.
"""

from __future__ import annotations

import enum
import itertools
import sys
from collections import deque
from random import Random
from typing import Any

import msgspec

NEVER = sys.maxsize
_ticks = itertools.count(1)
_names = itertools.count(1)

#: A key must outlive the whole test, so that its window does not end while a round is checked.
KEY_WINDOW_MS = 3_600_000
_OLD_KEYS = 100


def tick() -> int:
    """The present tick: the position in the order that the clients saw."""
    return next(_ticks)


class Outcome(enum.Enum):
    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Expectation(enum.Enum):
    """Whether a record is expected to exist, given the deletions."""

    LIVE = "live"
    GONE = "gone"
    EITHER = "either"


class Write(msgspec.Struct, kw_only=True, eq=False):
    """One append. `kept`: once acknowledged, it must survive the process. Otherwise its loss must be announced."""

    name: str
    node: str
    key: str | None
    tags: tuple[str | None, ...]
    fills: tuple[int, ...]
    kept: bool
    asked: int = 0
    answered: int = NEVER
    outcome: Outcome = Outcome.UNKNOWN
    first_seq: int | None = None

    @property
    def count(self) -> int:
        return len(self.tags)

    def data(self, index: int) -> dict[str, Any]:
        return {"write": self.name, "index": index, "of": self.count, "fill": "x" * self.fills[index]}

    def body(self) -> dict[str, Any]:
        """The request."""
        records: list[dict[str, Any]] = []
        for index, tag in enumerate(self.tags):
            record: dict[str, Any] = {"data": self.data(index), "meta": {"index": index}}
            records.append(record if tag is None else {**record, "tag": tag})
        body: dict[str, Any] = {"records": records, "node": self.node}
        return body if self.key is None else {**body, "idempotency_key": self.key}

    def served(self, index: int) -> dict[str, Any]:
        """A record as readers must see it, without $seq and $ts."""
        record = {"$node": self.node, "data": self.data(index), "meta": {"index": index}}
        tag = self.tags[index]
        return record if tag is None else {**record, "$tag": tag}


class Deletion(msgspec.Struct, kw_only=True, eq=False):
    """One deletion of records: below a seq, or with a tag that begins with `tag`."""

    before_seq: int | None = None
    tag: str | None = None
    asked: int = 0
    answered: int = NEVER
    outcome: Outcome = Outcome.UNKNOWN

    def body(self) -> dict[str, Any]:
        if self.before_seq is not None:
            return {"before_seq": self.before_seq}
        return {"match": ["tag", "Glob", f"{self.tag}*"]}


class Book:
    """The part of the ledger for one topic, from its creation to its deletion.

    `tight`: the topic never was ephemeral, so a process that dies loses nothing of it, and nothing may be announced.
    (The class memory promises less, but takes the same path as disk.) `turns`: its class is changed again and again.
    `cap`: it holds its newest records up to this number, so nobody may delete any; 0 = no cap.
    """

    def __init__(self, topic: str, durability: str, *, tight: bool = True, turns: bool = False, cap: int = 0) -> None:
        self.topic = topic
        self.durability = durability
        self.tight = tight
        self.turns = turns
        self.cap = cap
        #: A kill has torn the end of a log. A start then announces the seqs that may have been in the torn write.
        self.torn = False
        self.writes: dict[str, Write] = {}
        self.refused: set[str] = set()
        self.old_keys: deque[tuple[str, int, int]] = deque(maxlen=_OLD_KEYS)
        self.deletions: list[Deletion] = []
        #: Deleted below these seqs: for certain, and perhaps.
        self.floor = self.possible_floor = 1
        #: The head after the last start. No later write may get a seq up to here.
        self.base = 0
        self.acked_seq = 0
        #: What readers got since the last start: seq -> (write, index).
        self.seen: dict[int, tuple[str, int]] = {}
        #: A setting that counts changes: the last acknowledged value, and the last requested one.
        self.setting = self.asked_setting = 0
        #: Whether it was acknowledged to exist, and whether a creation or a deletion is open.
        self.exists = False
        self.in_doubt = False
        #: Whether its first append created it. Then it cannot exist without the records of that append.
        self.made_by_write = False

    def config(self, **changes: Any) -> dict[str, Any]:
        """The body of a PUT. Each one asks for another value of the setting."""
        self.asked_setting += 1
        config = {
            "durability": self.durability,
            "idempotency_window_ms": KEY_WINDOW_MS,
            "lease_ms": 1000 + self.asked_setting,
            "cap_records": self.cap,
        }
        return config | changes

    def new_write(self, node: str, dice: Random) -> Write:
        """A write of random size. Its first record has no tag, so that no deletion by tag hides all of it."""
        count = dice.choice((1, 1, 2, 3, 5, 8, 40))
        name = f"{node}-{next(_names)}"
        large = dice.random() < 0.02
        return Write(
            name=name,
            node=node,
            key=f"key {name}" if dice.random() < 0.75 else None,
            tags=(None, *(dice.choice((None, "t1", "t2", "t3", "g1", "g2")) for _ in range(count - 1))),
            fills=tuple(dice.randrange(20_000 if large else 200) for _ in range(count)),
            kept=self.tight,
        )

    def enter(self, write: Write) -> None:
        """Called before it is sent."""
        write.asked = tick()
        self.writes[write.name] = write

    def acknowledge(self, write: Write, first_seq: int) -> None:
        write.outcome = Outcome.OK
        write.first_seq = first_seq
        write.answered = tick()
        self.acked_seq = max(self.acked_seq, first_seq + write.count - 1)

    def refuse(self, write: Write) -> None:
        """It was refused for certain, so it must never appear."""
        write.outcome = Outcome.FAILED
        del self.writes[write.name]
        self.refused.add(write.name)

    def new_deletion(self, deletion: Deletion) -> None:
        deletion.asked = tick()
        self.deletions.append(deletion)
        if deletion.before_seq is not None:
            self.possible_floor = max(self.possible_floor, deletion.before_seq)

    def deleted(self, deletion: Deletion) -> None:
        """The deletion was acknowledged."""
        deletion.outcome = Outcome.OK
        deletion.answered = tick()
        if deletion.before_seq is not None:
            self.floor = max(self.floor, deletion.before_seq)

    def fate(self, write: Write, index: int) -> Expectation:
        """What deletions have done to a record whose seq is known."""
        assert write.first_seq is not None
        seq = write.first_seq + index
        if seq < self.floor:
            return Expectation.GONE
        fate = Expectation.EITHER if seq < self.possible_floor else Expectation.LIVE
        tag = write.tags[index]
        if tag is None:
            return fate
        for each in self.deletions:
            if each.tag is None or not tag.startswith(each.tag) or write.asked > each.answered:
                continue
            if each.outcome is Outcome.OK and write.answered < each.asked:
                return Expectation.GONE
            fate = Expectation.EITHER
        return fate

    def forget_deleted(self) -> None:
        """Forget what is completely below the floor. Some of the keys are kept to try them again."""
        for write in list(self.writes.values()):
            if write.first_seq is not None and write.first_seq + write.count <= self.floor:
                del self.writes[write.name]
                if write.key is not None and write.outcome is Outcome.OK and write.kept:
                    self.old_keys.append((write.key, write.first_seq, write.count))
        self.deletions = [each for each in self.deletions if each.tag is not None]
