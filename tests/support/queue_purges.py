"""Which jobs purges may have taken, and whether that agrees with the numbers in their answers."""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.kill_ledger import Outcome
from tests.support.queue_history import Act, Observation, Produce, Purge
from tests.support.queue_track import GrantedLease, Job, Tracks


class Purges:
    """All purges of a history that happened, or may have happened."""

    def __init__(self, tracks: Tracks) -> None:
        self._tracks = tracks
        self._history = tracks.history
        self._slack = tracks.history.rules.slack_ms
        self._looks = [look for look in tracks.history.of(Observation) if look.known]
        self._all = [purge for purge in tracks.history.of(Purge) if purge.possible]

    def may_have_taken(self, job: Job, until: float) -> bool:
        """Whether one of them may have deleted the job before `until`: the job existed, and was not leased all the
        time."""
        return any(purge.invoked < until and self._may_have(job, purge) for purge in self._all)

    def any_since(self, since: float, until: float) -> bool:
        """Whether there was a purge between the two, whatever it took."""
        return any(purge.invoked < until and self._history.end(purge) >= since for purge in self._all)

    def _may_have(self, job: Job, purge: Purge) -> bool:
        end = self._history.end(purge)
        if job.produce is None or job.produce.invoked > end:
            return False
        if any(job.seq in look.present and look.invoked > end for look in self._looks):
            return False
        return not any(self._holds(grant, purge.invoked, end) for grant in job.grants)

    def _holds(self, grant: GrantedLease, since: float, until: float) -> bool:
        """Whether it was certainly leased all the time between the two."""
        if grant.at + self._slack >= since or not self._history.eras[grant.era].ended >= until:
            return False
        if min(each.low for each in self._tracks.deadlines(grant, since, until)) <= until + self._slack:
            return False
        return not any(each.invoked < until + self._slack for each in grant.ends())

    # -- as many as they say -------------------------------------------------------------------------------------------

    def of_all(self, final: Observation) -> Iterator[str]:
        """In the end every missing job was acked or purged, and their number agrees with the answers of the purges."""
        said = sum(purge.purged for purge in self._all if purge.known)
        gone, doubtful = self._gone(final)
        if all(purge.known for purge in self._all) and len(gone) > said:
            yield f"{len(gone)} jobs are gone and were not acked, purges took {said}: {', '.join(gone[:5])} ..."
        if len(gone) + doubtful < said:
            yield f"purges took {said} jobs, and of all that are gone {len(gone) + doubtful} were not acked for certain"

    def _gone(self, final: Observation) -> tuple[list[str], int]:
        """Names that are gone without an ack, and how many more may be."""
        dead = {each.source_seq for each in final.dead}
        gone: list[str] = []
        doubtful = sum(
            name not in self._tracks.lives
            for produce in self._history.of(Produce)
            if produce.outcome is Outcome.UNKNOWN
            for name in produce.names
        )
        for name, lives in self._tracks.lives.items():
            if any(job.seq in final.present or job.seq in dead for job in lives):
                continue
            acks = [each for job in lives for grant in job.grants for each in grant.ends() if each.act is Act.ACK]
            if any(each.known for each in acks):
                continue
            if acks or any(each.act is Act.ACK for job in lives for each in job.loose):
                doubtful += 1
            else:
                gone.append(name)
        return gone, doubtful
