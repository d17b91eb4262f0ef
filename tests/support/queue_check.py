"""Checks a queue's history: could a queue that keeps its promises have answered like this?

What it must keep (docs/reference/api.md#queues): at most one lease of a job is valid at a time; an acked job is never
delivered again; every produced job ends acked, dead-lettered (once) or purged, or is still there, and a redriven job
goes back once; deliveries only grow; tokens, deadlines and deliveries outlive the process with leases_durable, and die
with it without; delays and backoff; the order of fresh jobs; attempt keys; nothing is leased while the queue is paused.

A request without an answer leaves two possibilities open, and only what contradicts both is a violation. If a lost
claim may have leased a job, one unseen delivery is excused for each lost claim.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from tests.support.kill_ledger import Outcome
from tests.support.queue_fate import FateCheck
from tests.support.queue_history import Act, Claim, History, Purge, Settle
from tests.support.queue_lives import LivesCheck
from tests.support.queue_story import story
from tests.support.queue_track import GrantedLease, Job, Tracks
from tests.support.queue_whole import WholeCheck

_SHOWN = 12


def check(history: History) -> None:
    """Raises AssertionError with the first violations, if there are any, and everything about the first job among
    them."""
    found = violations(history)
    jobs = [problem.split()[1].rstrip(":") for problem in found if problem.startswith("job ")]
    told = [f"All about job {jobs[0]}:", *story(history, int(jobs[0]))] if jobs else []
    assert not found, "\n".join([f"{len(found)} violations:", *found[:_SHOWN], *told])


def violations(history: History) -> list[str]:
    """One sentence for each violation."""
    tracks = Tracks(history)
    leases = LeaseCheck(tracks)
    found: list[str] = []
    for job in tracks.jobs.values():
        found += leases.of_job(job)
    found += leases.of_all()
    found += ClaimCheck(tracks).all()
    found += FateCheck(tracks).all()
    found += LivesCheck(tracks).all()
    found += WholeCheck(tracks).all()
    return [*tracks.problems, *found]


class LeaseCheck:
    """One lease after the other, and what was done to each."""

    def __init__(self, tracks: Tracks) -> None:
        self._tracks = tracks
        self._history = tracks.history
        self._rules = tracks.history.rules
        self._slack = tracks.history.rules.slack_ms
        self._unseen = 0

    def of_job(self, job: Job) -> Iterator[str]:
        for grant in job.grants:
            yield from (f"job {job.seq}: {problem}" for problem in self._of_lease(job, grant))
        counted = self.counted(job)
        for one, two in pairwise(job.grants):
            yield from (f"job {job.seq}: {problem}" for problem in self.succession(one, two, counted[one.lease.token]))
        yield from (f"job {job.seq}: {problem}" for problem in self._deliveries(job))

    def of_all(self) -> Iterator[str]:
        """A lost claim took no more jobs than it asked for. The job that was decided last made room for as many
        again."""
        possible = self._tracks.most_lost
        if self._unseen > possible:
            yield f"{self._unseen} deliveries went to nobody, and lost claims asked for {possible} jobs only"

    # -- one lease ---------------------------------------------------------------------------------------------------

    def _of_lease(self, job: Job, grant: GrantedLease) -> Iterator[str]:
        claim, lease = grant.claim, grant.lease
        if not claim.invoked - self._slack <= grant.at <= self._history.end(grant.answer) + self._slack:
            yield f"{lease.token} has deadline {lease.deadline}, so it was not leased while {claim.node} asked for it"
        produce = None if job.redriven else job.produce
        if produce is not None and grant.at < produce.invoked + produce.delay_ms - self._slack:
            yield f"{lease.token} was leased before the job was due"
        done = [settle for settle in grant.ends() if settle.known]
        if len(done) > 1:
            yield f"{lease.token} was ended by {' and '.join(each.act.value for each in done)}, both counted"
        for settle in grant.settles:
            if settle.known and grant.done_by(settle):
                yield from self._counted(job, grant, settle)
        for settle in grant.settles:
            if (settle.known and not grant.done_by(settle)) or job.seq in settle.refused:
                yield from self._passed_over(job, grant, settle)

    def _counted(self, job: Job, grant: GrantedLease, settle: Settle) -> Iterator[str]:
        """The call was effective, so there was an instant at which the lease was valid."""
        what = f"{settle.act.value} by {settle.node} under {grant.lease.token} counted"
        if settle.node != grant.claim.node:
            yield f"{what}, a lease of {grant.claim.node}"
        if not self._history.stands(grant.era, settle.era):
            yield f"{what} after a crash, and leases are not durable"
        deadlines = self._tracks.deadlines(grant, settle.invoked, self._history.end(settle))
        latest = max((each.high for each in deadlines if each.by is not settle), default=grant.lease.deadline)
        if settle.invoked - self._slack > latest:
            yield f"{what} {settle.invoked - latest:.0f} ms after its deadline"
        for each in grant.ends():
            if each is not settle and each.known and self._history.end(each) < settle.invoked:
                yield f"{what}, though {each.act.value} had ended it"
        after = job.next_of(grant)
        if after is not None and after.at + self._slack < settle.invoked:
            yield f"{what}, though {after.claim.node} had the job under {after.lease.token}"
        if settle.act is Act.EXTEND:
            at = settle.deadlines.get(job.seq, 0) - settle.lease_ms
            if not settle.invoked - self._slack <= at <= self._history.end(settle) + self._slack:
                yield f"{what} and gave the deadline {settle.deadlines.get(job.seq)}"

    def _passed_over(self, job: Job, grant: GrantedLease, settle: Settle) -> Iterator[str]:
        """The call was not effective, so there was an instant at which the lease was not valid any more."""
        end = self._history.end(settle)
        if settle.node != grant.claim.node or not self._history.stands(grant.era, settle.era):
            return
        if min(each.low for each in self._tracks.deadlines(grant, settle.invoked, end)) < end + self._slack:
            return
        after = job.next_of(grant)
        if after is not None and after.at - self._slack <= end:
            return
        others = [each for each in grant.settles if each is not settle and each.act is not Act.EXTEND]
        excuses = [each for each in others if each.invoked < end and self._pends(grant, each, settle)]
        if not excuses:
            yield f"{settle.act.value} by {settle.node} under {grant.lease.token}, a valid lease, was passed over"
        elif all(each.act is Act.ACK and not each.known and each.era < settle.era for each in excuses):
            # Whatever else happened: one of these acks must have been carried out.
            grant.acked = max(self._history.end(each) for each in excuses)

    def _pends(self, grant: GrantedLease, each: Settle, settle: Settle) -> bool:
        """It ended the lease, or may have, or may have been in progress at the time."""
        if each.outcome is Outcome.FAILED:
            return self._history.end(each) > settle.invoked
        return grant.done_by(each)

    # -- one after the other -----------------------------------------------------------------------------------------

    def succession(self, one: GrantedLease, two: GrantedLease, counted: int) -> Iterator[str]:
        """Two leases of a job. `counted`: deliveries up to the first that certainly count for its backoff."""
        what = f"{two.claim.node} was given {two.lease.token}"
        if one.acked < math.inf or any(each.act is Act.ACK and each.known for each in one.ends()):
            yield f"{what} after it was acked under {one.lease.token}"
            return
        ends = [each for each in one.ends() if each.act is not Act.ACK and each.invoked <= two.at + self._slack]
        if not self._history.stands(one.era, two.era):
            return
        deadlines = self._tracks.deadlines(one, two.claim.invoked, self._history.end(two.answer))
        earliest = min(each.low for each in deadlines)
        if not ends and two.at <= earliest:
            yield f"{what} {earliest - two.at:.0f} ms before {one.lease.token} of {one.claim.node} expired"
            return
        certain = [each for each in ends if each.known]
        backoff_ms = self._rules.least_wait_ms(counted)
        if certain:
            due = certain[0].invoked + _wait_ms(certain[0], backoff_ms) - self._slack
            if two.at < due:
                yield f"{what} before the delay of its nack was over"
        else:
            left = [each.invoked + _wait_ms(each, backoff_ms) - self._slack for each in ends]
            if two.at < min([earliest + backoff_ms, *left]):
                yield f"{what} before the backoff was over"

    def counted(self, job: Job) -> dict[str, int]:
        """For each of its leases, by token: how many deliveries so far certainly count for the backoff."""
        found: dict[str, int] = {}
        before: GrantedLease | None = None
        count = 0
        for grant in job.grants:
            if before is not None and not self._history.stands(before.era, grant.era):
                count = 0
            count += not any(each.act is Act.NACK and not each.penalty for each in grant.ends())
            found[grant.lease.token] = count
            before = grant
        return found

    def _deliveries(self, job: Job) -> Iterator[str]:
        before: GrantedLease | None = None
        known = forgiven = 0
        for grant in job.grants:
            if before is not None and not self._history.stands(before.era, grant.era):
                before, known, forgiven = None, 0, 0
            known += 1
            least = before.lease.deliveries + 1 if before is not None else 1
            if grant.lease.deliveries < least:
                yield f"{grant.lease.token} says {grant.lease.deliveries} deliveries, it must be {least} at least"
            elif grant.lease.deliveries > least:
                missing = grant.lease.deliveries - least
                self._unseen += missing
                lost = self._lost_claims(before, grant)
                if missing > lost:
                    yield (
                        f"{grant.lease.token} says {grant.lease.deliveries} deliveries: of {missing} nobody knows, "
                        f"and {lost} claims were lost meanwhile"
                    )
            most = self._rules.max_deliveries
            if most and known - forgiven > most:
                yield f"delivered {known} times, {forgiven} of them forgiven, at most {most} are allowed"
            forgiven += any(each.act is Act.NACK and not each.penalty for each in grant.ends())
            before = grant

    def _lost_claims(self, before: GrantedLease | None, grant: GrantedLease) -> int:
        """Claims without an answer that may have leased the job since."""
        since = before.at if before is not None else 0
        return sum(
            1
            for claim in self._tracks.lost_claims
            if claim.invoked <= grant.at + self._slack
            and self._history.end(claim) >= since
            and self._history.stands(claim.era, grant.era)
        )


def _wait_ms(end: Settle, backoff_ms: float) -> float:
    return backoff_ms if end.delay_ms is None else end.delay_ms


class ClaimCheck:
    """Claims as a whole: the order of their jobs, and what an attempt key returns."""

    def __init__(self, tracks: Tracks) -> None:
        self._tracks = tracks
        self._history = tracks.history
        self._slack = tracks.history.rules.slack_ms
        #: After these events, jobs that count as never delivered may have been put back: those of a failed claim, or of
        #: a claim whose client had left by the time they were read.
        self._refused = [*tracks.lost_claims, *(each for each in self._history.of(Purge) if not each.known)]

    def all(self) -> Iterator[str]:
        claims = [claim for claim in self._history.of(Claim) if claim.known]
        for claim in claims:
            yield from self._order(claim)
        yield from self._order_of_all(claims)
        answers: dict[tuple[str, str], list[Claim]] = {}
        for claim in claims:
            if claim.key is not None:
                same = answers.setdefault((claim.node, claim.key), [])
                for earlier in same:
                    yield from self._repeat(earlier, claim)
                same.append(claim)

    def _fresh(self, claim: Claim) -> list[int]:
        """Jobs that this request leased and that had never been delivered, according to the answer. A delayed job
        belongs to those that are due."""
        seqs: list[int] = []
        for lease in claim.leases:
            grant, job = self._tracks.grants[lease.token], self._tracks.jobs[lease.seq]
            delayed = job.produce is not None and job.produce.delay_ms > 0
            if grant.claim is claim and lease.deliveries == 1 and not delayed:
                seqs.append(lease.seq)
        return seqs

    def _leases_of(self, claim: Claim) -> list[GrantedLease]:
        return [self._tracks.grants[lease.token] for lease in claim.leases]

    def _order(self, claim: Claim) -> Iterator[str]:
        fresh = self._fresh(claim)
        if fresh != sorted(fresh):
            yield f"{claim.node} was given fresh jobs out of order: {fresh}"
        if any(grant.claim is not claim or grant.answer is not claim for grant in self._leases_of(claim)):
            return
        returned = [lease.seq for lease in claim.leases if lease.deliveries > 1]
        if returned != sorted(returned):
            yield f"{claim.node} was given returned jobs out of order: {returned}"
        # A crash or a failed claim may leave jobs that have returned and count as never delivered.
        if fresh and returned and claim.era == 0 and not self._failures(claim):
            seqs = [lease.seq for lease in claim.leases]
            if seqs.index(fresh[0]) < seqs.index(returned[-1]):
                yield f"{claim.node} was given fresh jobs before returned ones: {seqs}"

    def _failures(self, claim: Claim) -> bool:
        end = self._history.end(claim)
        return any(each.era == claim.era and each.invoked < end for each in self._refused)

    def _order_of_all(self, claims: list[Claim]) -> Iterator[str]:
        """What is requested after an answer is newer than what that answer returned."""
        asked = sorted(claims, key=lambda claim: claim.invoked)
        answered = sorted(claims, key=self._history.end)
        highest: Counter[int] = Counter()
        place = 0
        for claim in asked:
            while place < len(answered) and self._history.end(answered[place]) < claim.invoked:
                earlier = answered[place]
                highest[earlier.era] = max([highest[earlier.era], *self._fresh(earlier)])
                place += 1
            fresh = self._fresh(claim)
            if fresh and min(fresh) < highest[claim.era] and not self._failures(claim):
                yield f"{claim.node} was given the fresh job {min(fresh)}, when {highest[claim.era]} was out already"

    def _repeat(self, first: Claim, again: Claim) -> Iterator[str]:
        """While leases of the first answer are in force, the same key returns exactly these, with the same tokens and
        deadlines."""
        if again.invoked < first.answered or not self._history.stands(first.era, again.era):
            return
        end = self._history.end(again)
        given = {lease.token: lease for lease in again.leases}
        standing = [lease for lease in first.leases if self._holds(lease.token, again.invoked, end)]
        missing = [lease.token for lease in standing if lease.token not in given]
        if missing:
            yield f"{again.node} asked again under {again.key} and was not given {', '.join(missing)}"
        fresh = [lease.token for lease in again.leases if self._tracks.grants[lease.token].answer is again]
        if standing and fresh:
            yield f"{again.node} asked again under {again.key} and was given other jobs: {', '.join(fresh)}"
        for lease in first.leases:
            repeated = given.get(lease.token)
            if repeated is None:
                continue
            deadlines = self._tracks.deadlines(self._tracks.grants[lease.token], again.invoked, end)
            if not any(each.low <= repeated.deadline <= each.high for each in deadlines):
                yield f"{lease.token} had the deadline {lease.deadline}, asked for again it has {repeated.deadline}"

    def _holds(self, token: str, since: float, until: float) -> bool:
        """Certainly under a lease until then."""
        grant = self._tracks.grants[token]
        if min(each.low for each in self._tracks.deadlines(grant, since, until)) <= until + self._slack:
            return False
        return not any(each.invoked < until for each in grant.settles if each.act is not Act.EXTEND)
