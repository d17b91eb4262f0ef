"""What holds for the queue as a whole: nothing is leased while it is paused, and a stream has a limited number of jobs
at a time."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from tests.support.queue_history import Claim, Observation, Pause
from tests.support.queue_track import GrantedLease, Tracks


class WholeCheck:
    """Pauses and streams."""

    def __init__(self, tracks: Tracks) -> None:
        self._tracks = tracks
        self._history = tracks.history
        self._slack = tracks.history.rules.slack_ms
        self._pauses = [each for each in tracks.history.of(Pause) if each.possible]

    def all(self) -> Iterator[str]:
        paused = list(self._certainly_paused())
        for grant in self._tracks.grants.values():
            for since, until in paused:
                if since + self._slack < grant.at < until - self._slack:
                    yield f"job {grant.lease.seq}: {grant.lease.token} was leased while the queue was paused"
        for look in self._history.of(Observation):
            if look.known and look.paused is not None:
                yield from self._seen(look, paused)
        yield from self._streams()

    # -- pauses --------------------------------------------------------------------------------------------------------

    def _certainly_paused(self) -> Iterator[tuple[float, float]]:
        """From when to when the queue was paused, also over crashes."""
        for pause in self._pauses:
            if pause.known and pause.paused:
                since = self._history.end(pause)
                resumes = [
                    each for each in self._pauses if not each.paused and self._history.end(each) >= pause.invoked
                ]
                until = min([each.invoked for each in resumes], default=math.inf)
                if until > since:
                    yield since, until

    def _seen(self, look: Observation, paused: list[tuple[float, float]]) -> Iterator[str]:
        end = self._history.end(look)
        if not look.paused and any(since < look.invoked and end < until for since, until in paused):
            yield "the queue was paused, and is not any more"
        if look.paused and not any(self._may_last(pause, look) for pause in self._pauses if pause.paused):
            yield "the queue is paused, though nobody has paused it since it was resumed"

    def _may_last(self, pause: Pause, look: Observation) -> bool:
        if pause.invoked >= self._history.end(look):
            return False
        return not any(
            not each.paused
            and each.known
            and each.invoked >= self._history.end(pause)
            and self._history.end(each) <= look.invoked
            for each in self._pauses
        )

    # -- streams -------------------------------------------------------------------------------------------------------

    def _streams(self) -> Iterator[str]:
        brought: dict[int, list[GrantedLease]] = defaultdict(list)
        for claim in self._history.of(Claim):
            if claim.stream is not None:
                grant = self._tracks.grants[claim.leases[0].token]
                held = [each for each in brought[id(claim.stream)] if self._holds(each, grant.at)]
                if len(held) >= claim.stream.max:
                    yield (
                        f"job {grant.lease.seq}: {grant.lease.token} was pushed to {claim.node}, which had {len(held)} "
                        f"jobs in hand, {claim.stream.max} at most"
                    )
                brought[id(claim.stream)] = [*held, grant]

    def _holds(self, grant: GrantedLease, at: float) -> bool:
        """Certainly leased at that time."""
        if min(each.low for each in self._tracks.deadlines(grant, at, at)) <= at:
            return False
        return not any(each.invoked <= at + self._slack for each in grant.ends())
