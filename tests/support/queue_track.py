"""The history of a queue, sorted by job: which leases of it there were, and what was done to each.

Every lease has a token of its own and an exact instant at which it was dealt (its deadline less the time asked for), so
the leases of a job have one order, whatever the clients saw first.
"""

from __future__ import annotations

import math

import msgspec

from tests.support.kill_ledger import Outcome
from tests.support.queue_history import Act, Claim, History, Lease, Look, Produce, Redrive, Settle, Stream


class Deal(msgspec.Struct, kw_only=True, eq=False):
    """One lease. `claim` is the first request that may have dealt it, `answer` the first whose answer had it; the two
    differ when an answer was lost and asked for again under its key."""

    lease: Lease
    claim: Claim
    answer: Claim
    at: int
    settles: list[Settle] = []
    #: By when it had ended by an ack whose own answer was lost, as others have shown.
    acked: float = math.inf

    @property
    def era(self) -> int:
        return self.answer.era

    def ends(self) -> list[Settle]:
        """Acks and nacks that ended it, or may have."""
        return [each for each in self.settles if each.act is not Act.EXTEND and each.possible and self.done_by(each)]

    def done_by(self, settle: Settle) -> bool:
        """Whether the settle says so, or does not say."""
        return settle.outcome is Outcome.UNKNOWN or (settle.known and self.lease.seq not in settle.skipped)


class Job(msgspec.Struct, kw_only=True, eq=False):
    """`produce` is None when nobody ever asked for a job of this name; `loose`: settles without a token that may have
    been about a lease nobody knows of. `redriven`: it is there under another seq than it was produced with; `seen` is
    by when for the first time."""

    seq: int
    name: str
    produce: Produce | None
    deals: list[Deal] = []
    loose: list[Settle] = []
    redriven: bool = False
    seen: float = math.inf

    def next_of(self, deal: Deal) -> Deal | None:
        later = self.deals.index(deal) + 1
        return self.deals[later] if later < len(self.deals) else None


class Deadline(msgspec.Struct, frozen=True):
    """What a lease's deadline may have been: from `low` to `high`, set by `by` (None: the claim)."""

    low: float
    high: float
    by: Settle | None


class Tracks:
    """Jobs by seq, deals by token; `problems` are what makes no sense whatever the order of things."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.problems: list[str] = []
        self.jobs: dict[int, Job] = {}
        self.deals: dict[str, Deal] = {}
        #: By name, by seq: more than one when it was brought back from the dead.
        self.lives: dict[str, list[Job]] = {}
        #: Claims and streams that may have dealt jobs nobody knows of, and the keyed ones by (node, key).
        self.lost_claims: list[Claim | Stream] = [*history.of(Stream)]
        self._keyed: dict[tuple[str, str], Claim] = {}
        self._by_name: dict[str, tuple[Produce, int]] = {}
        self.redrives = [each for each in history.of(Redrive) if each.possible]
        self._add_produced()
        seen = [each for each in (*history.of(Claim), *history.of(Look)) if each.known]
        for each in sorted(seen, key=history.end):  # what is seen first of a job is what was produced
            self._see(each)
        for claim in history.of(Claim):
            self._add_claim(claim)
        for seq in sorted(self.jobs):
            job = self.jobs[seq]
            job.deals.sort(key=lambda deal: (deal.at, deal.era, deal.lease.deliveries))
            self.lives.setdefault(job.name, []).append(job)
        #: Since when a node may hold leases that nobody knows of.
        self._in_doubt_since: dict[str, float] = {}
        for claim in self.lost_claims:
            self._in_doubt_since.setdefault(claim.node, claim.invoked)
        for settle in history.of(Settle):
            self._add_settle(settle)

    # -- sorting -----------------------------------------------------------------------------------------------------

    @property
    def most_lost(self) -> int:
        """So many jobs lost claims may have taken. What is settled under a stream makes room for as many again."""
        return sum(2 * each.max if isinstance(each, Stream) else each.max for each in self.lost_claims)

    def _add_produced(self) -> None:
        for produce in self.history.of(Produce):
            for index, name in enumerate(produce.names):
                self._by_name[name] = (produce, index)
                if produce.known:
                    self.sighted(produce.first_seq + index, name, produce.answered)

    def _see(self, answered: Claim | Look) -> None:
        if isinstance(answered, Claim):
            seen = [(lease.seq, lease.name) for lease in answered.leases]
        else:
            seen = [*((dead.source_seq, dead.name) for dead in answered.dead), *answered.present.items()]
        for seq, name in sorted(seen):
            self.sighted(seq, name, self.history.end(answered))

    def sighted(self, seq: int, name: str, at: float) -> Job:
        """A job seen somewhere by then. One whose append was not answered pulls the others of its batch with it."""
        job = self.jobs.get(seq)
        if job is not None:
            job.seen = min(job.seen, at)
            if job.name != name:
                self.problems.append(f"job {seq} is {job.name} and {name}")
            return job
        produce, index = self._by_name.get(name, (None, 0))
        job = self.jobs[seq] = Job(seq=seq, name=name, produce=produce, seen=at)
        if produce is None:
            self.problems.append(f"job {seq} is {name}, which nobody produced")
        elif produce.outcome is Outcome.FAILED:
            self.problems.append(f"job {seq} is {name}, which was refused")
        elif not produce.first_seq:
            produce.first_seq = seq - index
            for each, other in enumerate(produce.names):
                self.sighted(produce.first_seq + each, other, at)
        elif seq > produce.first_seq + index and any(each.invoked < at for each in self.redrives):
            job.redriven = True
        elif produce.first_seq != seq - index:
            self.problems.append(f"{name} is job {produce.first_seq + index} and {seq}")
        return job

    def _add_claim(self, claim: Claim) -> None:
        if not claim.known:
            self.lost_claims.append(claim)
        first = claim
        if claim.key is not None:
            first = self._keyed.setdefault((claim.node, claim.key), claim)
        seqs = [lease.seq for lease in claim.leases]
        if len(seqs) > claim.max or len(set(seqs)) < len(seqs):
            self.problems.append(f"{claim.node} asked for {claim.max} jobs and was given {seqs}")
        for lease in claim.leases:
            job = self.jobs[lease.seq]
            known = self.deals.get(lease.token)
            if known is None:
                deal = Deal(lease=lease, claim=first, answer=claim, at=lease.deadline - claim.lease_ms)
                self.deals[lease.token] = deal
                job.deals.append(deal)
            elif known.claim is not first:
                self.problems.append(f"job {lease.seq}: {lease.token} was given to {known.claim.node} and {claim.node}")
            elif (known.lease.seq, known.lease.deliveries) != (lease.seq, lease.deliveries):
                self.problems.append(f"{lease.token} is {known.lease} and {lease}")

    def _add_settle(self, settle: Settle) -> None:
        if settle.act is Act.LEAVE:
            era = self.history.eras[settle.era]
            if settle.cut and not era.clean:
                return
            if era.clean:  # the process may have come first, whoever of the two has ended it
                settle.invoked = min(settle.invoked, era.asked)
        for seq, token in zip(settle.seqs, settle.tokens, strict=True):
            deal = self._deal_of(settle, seq, token)
            if deal is not None:
                deal.settles.append(settle)
            elif token is None and seq in self.jobs and self._in_doubt(settle):
                self.jobs[seq].loose.append(settle)
            elif token is None and settle.known and seq not in settle.skipped:
                self.problems.append(
                    f"job {seq}: {settle.act.value} by {settle.node} counted, and it never had the job"
                )
            elif settle.known and seq not in settle.skipped:
                self.problems.append(f"job {seq}: {settle.act.value} under {token} counted, and nobody has it")

    def _deal_of(self, settle: Settle, seq: int, token: str | None) -> Deal | None:
        """Whose lease it is about. Without a token it is the node's last one, if that is beyond doubt."""
        if token is not None:
            deal = self.deals.get(token)
            return deal if deal is not None and deal.lease.seq == seq else None
        job = self.jobs.get(seq)
        if job is None or self._in_doubt(settle):
            return None
        own = [deal for deal in job.deals if deal.claim.node == settle.node and deal.answer.invoked < settle.invoked]
        return own[-1] if own else None

    def _in_doubt(self, settle: Settle) -> bool:
        return self.history.end(settle) > self._in_doubt_since.get(settle.node, math.inf)

    # -- what may have been ------------------------------------------------------------------------------------------

    def deadlines(self, deal: Deal, since: float, until: float) -> list[Deadline]:
        """What the deadline may have been at some instant between the two."""
        slack, end = self.history.rules.slack_ms, self.history.end
        found = [Deadline(deal.lease.deadline, deal.lease.deadline, None)]
        for settle in deal.settles:
            if settle.act is not Act.EXTEND or settle.invoked >= until or not deal.done_by(settle):
                continue
            exact = settle.deadlines.get(deal.lease.seq)
            if exact is not None:
                found.append(Deadline(exact, exact, settle))
            elif not settle.known:
                low = settle.invoked + settle.lease_ms - slack
                found.append(Deadline(low, end(settle) + settle.lease_ms + slack, settle))
        certain = [each.by for each in found if each.by is not None and each.by.known and end(each.by) < since]
        return [
            each
            for each in found
            if not any(each.by is not by and (each.by is None or end(each.by) < by.invoked) for by in certain)
        ]
