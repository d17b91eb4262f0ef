"""The ledger of a mixed load, and the check that nothing was lost, doubled or out of order, and no job had two holders.

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
class Lease:
    """A lease that a worker was given. Times are of the ledger's monotonic clock, in seconds."""

    id: str
    #: Granted between these two: when it was asked for, and when the answer was there.
    asked: float
    answered: float
    #: It certainly lasts so long, unless the answer to a request that ends it is known to say otherwise.
    until: float


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
    #: seq → when the answer to its ack was there.
    done_at: dict[int, float] = field(default_factory=dict[int, float])
    #: seq → its leases.
    leases: dict[int, list[Lease]] = field(default_factory=dict[int, list[Lease]])

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
    double_leases: int = 0
    #: Records that routers have copied, and jobs that went to a dead letter topic.
    copied: int = 0
    dead: int = 0
    leases: int = 0
    problems: list[str] = field(default_factory=list[str])

    @property
    def holds(self) -> bool:
        return not (self.lost or self.doubled or self.disordered or self.double_leases)

    def found(self, topic: str, kind: str, count: int, what: str) -> None:
        """Count a number of errors of `kind` (lost, doubled, disordered, double_leases) and describe them."""
        if count:
            setattr(self, kind, getattr(self, kind) + count)
            self.problems.append(f"{topic}: {count} {kind}: {what}")


def judge(
    topics: Mapping[str, Topic],
    held: Mapping[str, Mapping[int, Stamp]],
    *,
    queues: Sequence[str],
    dead: Mapping[str, str] | None = None,
    routed: Mapping[str, str] | None = None,
) -> Verdict:
    """`held`: the final contents of each topic, seq → stamp. Readers and routers must have read to the end.

    `dead`: the dead letter topics of queues, by queue. `routed`: the sources of topics that one router writes to, by
    topic. Neither are among `topics`.
    """
    verdict = Verdict()
    dead, routed = dead or {}, routed or {}
    for name, topic in topics.items():
        verdict.acknowledged += len(topic.acked)
        verdict.unanswered += len(topic.open)
        verdict.found(name, "doubled", topic.doubled_seqs, "seqs given to two writes")
        _judge_order(name, topic, verdict)
        if name in queues:
            _judge_jobs(name, topic, held[name], held[dead[name]] if name in dead else {}, verdict)
            _judge_leases(name, topic, verdict)
        else:
            _judge_log(name, topic, held[name], verdict)
    for dest, source in routed.items():
        _judge_copies(dest, topics[source], held[source], held[dest], verdict)
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


def _judge_copies(
    name: str, source: Topic, held: Mapping[int, Stamp], copies: Mapping[int, Stamp], verdict: Verdict
) -> None:
    """What the source holds is in the destination once, in the same order."""
    verdict.copied += len(copies)
    wanted = [held[seq] for seq in sorted(held)]
    found = [copies[seq] for seq in sorted(copies)]
    verdict.found(name, "lost", len(set(wanted) - set(found)), "records that were not copied")
    verdict.found(name, "doubled", len(found) - len(set(found)), "records that were copied more than once")
    verdict.found(name, "doubled", len(set(found) - set(wanted)), "copies of what the source does not hold")
    place = {stamp: number for number, stamp in enumerate(wanted)}
    places = [place[stamp] for stamp in found if stamp in place]
    backwards = sum(after < before for before, after in pairwise(places))
    verdict.found(name, "disordered", backwards, "records that were copied after a later one")


def _judge_jobs(
    name: str, topic: Topic, held: Mapping[int, Stamp], dead: Mapping[int, Stamp], verdict: Verdict
) -> None:
    verdict.jobs_done += len(topic.done)
    verdict.dead += len(dead)
    buried = set(dead.values())
    missing = topic.acked.keys() - held.keys() - topic.done.keys() - topic.perhaps_done
    gone = [seq for seq in missing if topic.acked[seq] not in buried]
    verdict.found(name, "lost", len(gone), "jobs that nobody has acked, and that are not there")
    again = sum(count - 1 for count in topic.done.values())
    verdict.found(name, "doubled", again, "jobs acked more than once")
    still = topic.done.keys() & held.keys()
    verdict.found(name, "doubled", len(still), "jobs that were acked, and are there")
    verdict.found(name, "doubled", len(dead) - len(buried), "jobs that died more than once")
    alive = {stamp for seq, stamp in topic.acked.items() if seq in held or seq in topic.done}
    verdict.found(name, "doubled", len(buried & alive), "jobs that died, and were acked or are there")
    verdict.found(
        name, "doubled", len(buried - {*topic.acked.values()} - topic.open), "dead jobs that nobody has written"
    )


def _judge_leases(name: str, topic: Topic, verdict: Verdict) -> None:
    both = after_ack = 0
    for seq, leases in topic.leases.items():
        verdict.leases += len(leases)
        ended = topic.done_at.get(seq)
        after_ack += sum(ended is not None and lease.asked > ended for lease in leases)
        granted = sorted(leases, key=lambda lease: lease.answered)
        for number, first in enumerate(granted):
            both += sum(
                first.id != other.id and other.asked >= first.answered and other.answered <= first.until
                for other in granted[number + 1 :]
            )
    verdict.found(name, "double_leases", both, "jobs leased to two workers at the same time")
    verdict.found(name, "doubled", after_ack, "jobs that were leased again after their ack")
