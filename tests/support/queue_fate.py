"""The fate of each job, as seen in the queue: acked, dead-lettered once, purged, or still there. What was seen stays
true."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from tests.support.kill_ledger import Outcome
from tests.support.queue_history import Act, Observation, Produce, Settle
from tests.support.queue_purges import Purges
from tests.support.queue_track import GrantedLease, Job, Tracks


class FateCheck:
    """All views of the queue and its dead letter topic, in order."""

    def __init__(self, tracks: Tracks) -> None:
        self._tracks = tracks
        self._history = tracks.history
        self._rules = tracks.history.rules
        self._looks = [look for look in tracks.history.of(Observation) if look.known]
        self._purges = Purges(tracks)
        self._seen_dead = [Counter(each.source_seq for each in look.dead) for look in self._looks]

    def all(self) -> Iterator[str]:
        for look, seen in zip(self._looks, self._seen_dead, strict=True):
            yield from self._dead_letters(look, seen)
        for (one, before), (two, after) in pairwise(zip(self._looks, self._seen_dead, strict=True)):
            for seq in before.keys() - after.keys():
                if not self._brought_back(seq, one.invoked, self._history.end(two)):
                    yield f"job {seq} was in the dead letter topic and is not any more"
        yield from self._batches()
        if self._looks and self._looks[-1].final:
            yield from self._purges.of_all(self._looks[-1])
        for job in list(self._tracks.jobs.values()):
            yield from (f"job {job.seq} ({job.name}): {problem}" for problem in self._of_job(job))

    def _dead_letters(self, look: Observation, seen: Counter[int]) -> Iterator[str]:
        for seq, count in seen.items():
            if count > 1:
                yield f"job {seq} is {count} times in the dead letter topic"
        for dead in look.dead:
            job = self._tracks.jobs[dead.source_seq]
            if not 0 < self._rules.max_deliveries <= dead.deliveries:
                yield f"job {job.seq} was dead-lettered after {dead.deliveries} deliveries"
            last = job.grants[-1] if job.grants else None
            if last is None or not look.final or not self._history.stands(last.era, look.era):
                continue
            given = last.lease.deliveries
            if dead.deliveries < given:
                yield f"job {job.seq} was delivered {given} times, its dead letter says {dead.deliveries}"

    def _brought_back(self, seq: int, since: float, until: float) -> bool:
        """Whether a dead letter may have been redriven between the two views: it is back in the queue, or was purged
        unseen."""
        if not any(each.invoked < until and self._history.end(each) >= since for each in self._tracks.redrives):
            return False
        lives = self._tracks.lives[self._tracks.jobs[seq].name]
        return lives[-1].seq > seq or self._purges.any_since(since, until)

    def _batches(self) -> Iterator[str]:
        """Names that were answered with a seq. The other jobs exist only if somebody has seen one of their batch."""
        for produce in self._history.of(Produce):
            if produce.known and not produce.first_seq:
                yield f"{produce.names[0]} was produced, and got no seq"

    # -- one job -----------------------------------------------------------------------------------------------------

    def _of_job(self, job: Job) -> Iterator[str]:
        produce = job.produce
        if produce is None or produce.outcome is Outcome.FAILED:
            return  # reported already
        gone: Observation | None = None
        dead: Observation | None = None
        for look, seen in zip(self._looks, self._seen_dead, strict=True):
            if (job.seen + self._rules.slack_ms if job.redriven else self._history.end(produce)) >= look.invoked:
                continue
            if job.seq in look.present:
                yield from self._there(job, look, gone, dead if look.final else None)
            elif gone is None and job.seq not in seen:
                yield from self._absent(job, look)
            if job.seq in seen and dead is None:
                dead = look
                yield from self._dead(job, look)
            if job.seq not in look.present:
                gone = gone or look
        yield from self._afterwards(job, gone)

    def _there(self, job: Job, look: Observation, gone: Observation | None, dead: Observation | None) -> Iterator[str]:
        if gone is not None:
            yield "was gone and is back"
        if dead is not None or (look.final and job.seq in self._seen_dead[self._looks.index(look)]):
            yield "is in the dead letter topic and still in the queue"
        for grant, acked in self._acks(job):
            if acked < look.invoked:
                yield f"was acked under {grant.lease.token} and is still there"

    def _absent(self, job: Job, look: Observation) -> Iterator[str]:
        """Neither in the queue nor dead: its last lease was acked, or it was purged, or it died and was redriven."""
        leased = [grant for grant in job.grants if grant.at <= self._history.end(look) + self._rules.slack_ms]
        last = leased[-1] if leased else None
        acks = [*job.loose, *(settle for settle in last.settles if last.done_by(settle))] if last else job.loose
        if any(self._may_have_acked(job, settle, look) for settle in acks):
            return
        again = self._tracks.lives[job.name][-1].seq > job.seq
        if not again and not self._purges.may_have_taken(job, self._history.end(look)):
            yield "is lost: it was never acked, and is neither in the queue nor a dead letter"

    def _may_have_acked(self, job: Job, settle: Settle, look: Observation) -> bool:
        if settle.act is not Act.ACK or not settle.possible or job.seq in settle.skipped:
            return False
        if settle.invoked >= self._history.end(look):
            return False
        # It was seen in the queue after the ack had ended, so the ack did not happen.
        return not any(
            job.seq in each.present and self._history.end(settle) < each.invoked
            for each in self._looks
            if each.invoked < look.invoked
        )

    def _dead(self, job: Job, look: Observation) -> Iterator[str]:
        for grant, _ in self._acks(job):
            if grant.at < look.answered:
                yield f"was acked under {grant.lease.token} and dead-lettered"

    def _afterwards(self, job: Job, gone: Observation | None) -> Iterator[str]:
        if gone is None:
            return
        for grant in job.grants:
            if grant.at > gone.answered + self._rules.slack_ms:
                yield f"was gone, and then {grant.claim.node} was given {grant.lease.token}"

    def _acks(self, job: Job) -> Iterator[tuple[GrantedLease, float]]:
        """Leases that ended with an ack, and the latest time of that."""
        for grant in job.grants:
            acks = [settle for settle in grant.ends() if settle.act is Act.ACK and settle.known]
            acked = min([grant.acked, *(self._history.end(settle) for settle in acks)])
            if acked < math.inf:
                yield grant, acked
