"""The ledger of a mixed load, and the check that nothing was lost, doubled or out of order.

Pure. Producers note acknowledged writes, readers note the records they got; `judge` compares both with the topics'
contents at the end. A write or ack without an answer may have happened or not, but never in part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

#: Who wrote a record, and its number: each writer counts its own from 1.
Stamp = tuple[str, int]


@dataclass
class Topic:
    """The notes about one topic."""

    #: seq → stamp, of every acknowledged record.
    acked: dict[int, Stamp] = field(default_factory=dict[int, Stamp])
    #: Sent, and never answered.
    open: set[Stamp] = field(default_factory=set[Stamp])
    #: Two answers gave out one seq.
    doubled_seqs: int = 0
    #: Seqs as each reader was given them, in the order it got them.
    read: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    #: seq → how often a job was acked, and said to be.
    done: Counter[int] = field(default_factory=Counter[int])
    #: Jobs whose ack was never answered.
    perhaps_done: set[int] = field(default_factory=set[int])

    def wrote(self, first_seq: int, stamps: Iterable[Stamp]) -> None:
        """A write was acknowledged."""
        for seq, stamp in enumerate(stamps, first_seq):
            self.doubled_seqs += self.acked.get(seq, stamp) != stamp
            self.acked[seq] = stamp

    def saw(self, reader: str, seqs: Iterable[int]) -> None:
        """A reader was given these records."""
        self.read.setdefault(reader, []).extend(seqs)


@dataclass
class Verdict:
    """Figures of a whole run. `problems` describes a few of the errors in words."""

    acknowledged: int = 0
    delivered: int = 0
    jobs_done: int = 0
    unanswered: int = 0
    lost: int = 0
    doubled: int = 0
    disordered: int = 0
    problems: list[str] = field(default_factory=list[str])

    @property
    def holds(self) -> bool:
        return not (self.lost or self.doubled or self.disordered)

    def found(self, topic: str, kind: str, count: int, what: str) -> None:
        """Count a number of errors of `kind` (lost, doubled, disordered) and describe them."""
        if count:
            setattr(self, kind, getattr(self, kind) + count)
            self.problems.append(f"{topic}: {count} {kind}: {what}")


def judge(topics: Mapping[str, Topic], held: Mapping[str, Mapping[int, Stamp]], *, queues: Sequence[str]) -> Verdict:
    """`held`: the final contents of each topic, seq → stamp. Readers must have read to the end."""
    verdict = Verdict()
    for name, topic in topics.items():
        verdict.acknowledged += len(topic.acked)
        verdict.unanswered += len(topic.open)
        verdict.found(name, "doubled", topic.doubled_seqs, "seqs given to two writes")
        _judge_order(name, topic, verdict)
        if name in queues:
            _judge_jobs(name, topic, held[name], verdict)
        else:
            _judge_log(name, topic, held[name], verdict)
    return verdict


def _judge_order(name: str, topic: Topic, verdict: Verdict) -> None:
    last: dict[str, int] = {}
    wrong = 0
    for seq in sorted(topic.acked):
        writer, number = topic.acked[seq]
        wrong += number <= last.get(writer, 0)
        last[writer] = number
    verdict.found(name, "disordered", wrong, "records of one writer do not stand in the order it wrote them in")


def _judge_log(name: str, topic: Topic, held: Mapping[int, Stamp], verdict: Verdict) -> None:
    gone = [seq for seq, stamp in topic.acked.items() if held.get(seq) != stamp]
    verdict.found(name, "lost", len(gone), f"acknowledged, and not there as written, seq {min(gone, default=0)} first")
    twice = len(held) - len(set(held.values()))
    verdict.found(name, "doubled", twice, "records that are there more than once")
    strange = [seq for seq, stamp in held.items() if seq not in topic.acked and stamp not in topic.open]
    verdict.found(name, "doubled", len(strange), "records that nobody has written")
    for reader, seqs in topic.read.items():
        verdict.delivered += len(seqs)
        verdict.found(name, "doubled", len(seqs) - len(set(seqs)), f"given to {reader} more than once")
        backwards = sum(after < before for before, after in pairwise(seqs))
        verdict.found(name, "disordered", backwards, f"given to {reader} after a later one")
        missed = sum(seq >= seqs[0] for seq in held) - len(set(seqs)) if seqs else 0
        verdict.found(name, "lost", max(0, missed), f"never given to {reader}")


def _judge_jobs(name: str, topic: Topic, held: Mapping[int, Stamp], verdict: Verdict) -> None:
    verdict.jobs_done += len(topic.done)
    gone = topic.acked.keys() - held.keys() - topic.done.keys() - topic.perhaps_done
    verdict.found(name, "lost", len(gone), "jobs that nobody has acked, and that are not there")
    again = sum(count - 1 for count in topic.done.values())
    verdict.found(name, "doubled", again, "jobs acked more than once")
    still = topic.done.keys() & held.keys()
    verdict.found(name, "doubled", len(still), "jobs that were acked, and are there")
