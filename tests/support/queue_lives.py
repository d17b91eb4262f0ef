"""Jobs that were redriven from the dead letter topic: each once, and never together with the former job."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from tests.support.queue_history import Act, Observation, Purge, Redrive
from tests.support.queue_track import Job, Tracks


class LivesCheck:
    """The jobs of one name, in the order of their seqs. All but the last have ended, and not with an ack."""

    def __init__(self, tracks: Tracks) -> None:
        self._tracks = tracks
        self._history = tracks.history
        self._slack = tracks.history.rules.slack_ms
        self._looks = [look for look in tracks.history.of(Observation) if look.known]

    def all(self) -> Iterator[str]:
        for lives in self._tracks.lives.values():
            for one, two in pairwise(lives):
                yield from (f"job {two.seq} ({two.name}): {problem}" for problem in self._again(one, two))
        if self._looks and self._looks[-1].final:
            yield from self._as_many()

    def _again(self, one: Job, two: Job) -> Iterator[str]:
        what = f"is job {one.seq} again"
        for grant in one.grants:
            if grant.acked < math.inf or any(each.act is Act.ACK and each.known for each in grant.ends()):
                yield f"{what}, which was acked under {grant.lease.token}"
        for look in self._looks:
            if look.invoked > two.seen + self._slack and one.seq in look.present:
                yield f"{what}, which is still there"
            if look.final and any(each.source_seq == one.seq for each in look.dead):
                yield f"{what}, which is still a dead letter"
        if one.grants and two.grants:
            yield from (f"{what}, and {problem}" for problem in self._at_a_time(one, two))

    def _at_a_time(self, one: Job, two: Job) -> Iterator[str]:
        last, first = one.grants[-1], two.grants[0]
        if not self._history.stands(last.era, first.era):
            return
        if any(each.invoked <= first.at + self._slack for each in last.ends()):
            return
        earliest = min(each.low for each in self._tracks.deadlines(last, first.claim.invoked, first.at))
        if first.at <= earliest:
            yield f"{first.lease.token} was given before {last.lease.token} had ended"

    def _as_many(self) -> Iterator[str]:
        """What redrives report as moved is there again, under another seq. A job that was purged, or went to lost
        claims only, need not have been seen."""
        redrives = [each for each in self._history.of(Redrive) if each.possible]
        moved = sum(each.moved for each in redrives if each.known)
        back = sum(job.redriven for job in self._tracks.jobs.values())
        if all(each.known for each in redrives) and back > moved:
            yield f"{back} jobs came back from the dead letter topic, and redrives moved {moved}"
        purges = [each for each in self._history.of(Purge) if each.possible]
        unseen = sum(each.purged for each in purges) if all(each.known for each in purges) else math.inf
        unseen += self._tracks.most_lost
        if back + unseen < moved:
            yield f"redrives moved {moved} jobs, and {back} came back"
