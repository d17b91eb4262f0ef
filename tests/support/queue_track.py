"""The history of a queue by job: the leases of each job, and the calls about each lease.

Every lease has a unique token and an exact start (its deadline minus the requested duration). So the leases of a job
have one order, whatever the clients saw first.
"""

from __future__ import annotations

import math

import msgspec

from tests.support.kill_ledger import Outcome
from tests.support.queue_history import Act, Claim, History, Lease, Observation, Produce, Redrive, Settle, Stream


class GrantedLease(msgspec.Struct, kw_only=True, eq=False):
    """A lease. `claim` is the first request that may have made the lease; `answer` is the first request whose answer
    contained the lease. They differ if an answer was lost and the claim was repeated with its key."""

    lease: Lease
    claim: Claim
    answer: Claim
    at: int
    settles: list[Settle] = []
    #: The latest time of an ack whose answer was lost, as later operations prove.
    acked: float = math.inf

    @property
    def era(self) -> int:
        return self.answer.era

    def ends(self) -> list[Settle]:
        """The acks and nacks that ended the lease, or may have ended it."""
        return [each for each in self.settles if each.act is not Act.EXTEND and each.possible and self.done_by(each)]

    def done_by(self, settle: Settle) -> bool:
        """Whether the settle succeeded or has no answer."""
        return settle.outcome is Outcome.UNKNOWN or (settle.known and self.lease.seq not in settle.skipped)


class Job(msgspec.Struct, kw_only=True, eq=False):
    """`produce` is None if no append had a job of this name. `loose`: settles without a token, which may concern a
    lease of a lost answer. `redriven`: the job has another seq than it was produced with, first seen at `seen`."""

    seq: int
    name: str
    produce: Produce | None
    grants: list[GrantedLease] = []
    loose: list[Settle] = []
    redriven: bool = False
    seen: float = math.inf

    def next_of(self, grant: GrantedLease) -> GrantedLease | None:
        later = self.grants.index(grant) + 1
        return self.grants[later] if later < len(self.grants) else None


class Deadline(msgspec.Struct, frozen=True):
    """The possible deadline of a lease: from `low` to `high`, set by `by` (None: the claim)."""

    low: float
    high: float
    by: Settle | None


class Tracks:
    """Jobs by seq, leases by token. `problems`: contradictions that no order of the operations resolves."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.problems: list[str] = []
        self.jobs: dict[int, Job] = {}
        self.grants: dict[str, GrantedLease] = {}
        #: Jobs by name; several, by seq, if a job was redriven.
        self.lives: dict[str, list[Job]] = {}
        #: Claims and streams that may have leased unknown jobs, and the claims with a key by (node, key).
        self.lost_claims: list[Claim | Stream] = [*history.of(Stream)]
        self._keyed: dict[tuple[str, str], Claim] = {}
        self._by_name: dict[str, tuple[Produce, int]] = {}
        self.redrives = [each for each in history.of(Redrive) if each.possible]
        self._add_produced()
        seen = [each for each in (*history.of(Claim), *history.of(Observation)) if each.known]
        for each in sorted(seen, key=history.end):  # the first seq of a job is the one it was produced with
            self._see(each)
        for claim in history.of(Claim):
            self._add_claim(claim)
        for seq in sorted(self.jobs):
            job = self.jobs[seq]
            job.grants.sort(key=lambda grant: (grant.at, grant.era, grant.lease.deliveries))
            self.lives.setdefault(job.name, []).append(job)
        #: Since when a node may hold unknown leases.
        self._in_doubt_since: dict[str, float] = {}
        for claim in self.lost_claims:
            self._in_doubt_since.setdefault(claim.node, claim.invoked)
        for settle in history.of(Settle):
            self._add_settle(settle)

    # -- sorting -----------------------------------------------------------------------------------------------------

    @property
    def most_lost(self) -> int:
        """How many jobs lost claims may have taken. Ending a job of a stream makes room for as many again."""
        return sum(2 * each.max if isinstance(each, Stream) else each.max for each in self.lost_claims)

    def _add_produced(self) -> None:
        for produce in self.history.of(Produce):
            for index, name in enumerate(produce.names):
                self._by_name[name] = (produce, index)
                if produce.known:
                    self.sighted(produce.first_seq + index, name, produce.answered)

    def _see(self, answered: Claim | Observation) -> None:
        if isinstance(answered, Claim):
            seen = [(lease.seq, lease.name) for lease in answered.leases]
        else:
            seen = [*((dead.source_seq, dead.name) for dead in answered.dead), *answered.present.items()]
        for seq, name in sorted(seen):
            self.sighted(seq, name, self.history.end(answered))

    def sighted(self, seq: int, name: str, at: float) -> Job:
        """A job was seen somewhere by then. If its append was not answered, this shows that the others of its batch
        exist."""
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
            known = self.grants.get(lease.token)
            if known is None:
                grant = GrantedLease(lease=lease, claim=first, answer=claim, at=lease.deadline - claim.lease_ms)
                self.grants[lease.token] = grant
                job.grants.append(grant)
            elif known.claim is not first:
                self.problems.append(f"job {lease.seq}: {lease.token} was given to {known.claim.node} and {claim.node}")
            elif (known.lease.seq, known.lease.deliveries) != (lease.seq, lease.deliveries):
                self.problems.append(f"{lease.token} is {known.lease} and {lease}")

    def _add_settle(self, settle: Settle) -> None:
        if settle.act is Act.LEAVE:
            era = self.history.eras[settle.era]
            if settle.cut and not era.clean:
                return
            if era.clean:  # the end of the process may have come first, whichever of the two ended the lease
                settle.invoked = min(settle.invoked, era.asked)
        for seq, token in zip(settle.seqs, settle.tokens, strict=True):
            grant = self._deal_of(settle, seq, token)
            if grant is not None:
                grant.settles.append(settle)
            elif token is None and seq in self.jobs and self._in_doubt(settle):
                self.jobs[seq].loose.append(settle)
            elif token is None and settle.known and seq not in settle.skipped:
                self.problems.append(
                    f"job {seq}: {settle.act.value} by {settle.node} counted, and it never had the job"
                )
            elif settle.known and seq not in settle.skipped:
                self.problems.append(f"job {seq}: {settle.act.value} under {token} counted, and nobody has it")

    def _deal_of(self, settle: Settle, seq: int, token: str | None) -> GrantedLease | None:
        """The lease that the call is about. Without a token it is the node's last one, if that is certain."""
        if token is not None:
            grant = self.grants.get(token)
            return grant if grant is not None and grant.lease.seq == seq else None
        job = self.jobs.get(seq)
        if job is None or self._in_doubt(settle):
            return None
        own = [
            grant for grant in job.grants if grant.claim.node == settle.node and grant.answer.invoked < settle.invoked
        ]
        return own[-1] if own else None

    def _in_doubt(self, settle: Settle) -> bool:
        return self.history.end(settle) > self._in_doubt_since.get(settle.node, math.inf)

    # -- what may have been ------------------------------------------------------------------------------------------

    def deadlines(self, grant: GrantedLease, since: float, until: float) -> list[Deadline]:
        """The possible deadlines at some instant between the two."""
        slack, end = self.history.rules.slack_ms, self.history.end
        found = [Deadline(grant.lease.deadline, grant.lease.deadline, None)]
        for settle in grant.settles:
            if settle.act is not Act.EXTEND or settle.invoked >= until or not grant.done_by(settle):
                continue
            exact = settle.deadlines.get(grant.lease.seq)
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
