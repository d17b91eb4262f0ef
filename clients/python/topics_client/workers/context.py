"""What a handler can know about its job, and say about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from topics_client.values import Job
from topics_client.workers.durations import Duration, seconds
from topics_client.workers.state import Held, Kind, Outcome

if TYPE_CHECKING:
    from topics_client.workers.lane import Lane


class JobContext:
    """Beside the data of a job: what else there is of it, and what is to become of it.

    A handler that returns has done its job, one that raises has not. `reject` and `retry` say something else; what is
    said last counts, when the handler ends. All may be called from coroutines: nothing here waits.
    """

    __slots__ = ("_lane", "_said", "held")

    def __init__(self, lane: Lane, held: Held) -> None:
        self._lane = lane
        self._said: Outcome | None = None
        #: Of the worker.
        self.held = held

    @property
    def job(self) -> Job:
        """The job as it was claimed: seq, tag, meta, time."""
        return self.held.job

    @property
    def queue(self) -> str:
        return self._lane.queue

    @property
    def deliveries(self) -> int:
        """How often the job was handed out, this time included."""
        return self.held.job.deliveries

    @property
    def deadline(self) -> float:
        """When the lease ends unless it is renewed, which the worker does: seconds of time.monotonic()."""
        return self.held.expires

    @property
    def lost(self) -> bool:
        """Whether the lease has ended: another worker may have the job, and the outcome of this handler is not sent. A
        handler that is no coroutine function should look from time to time, and end. (Coroutines are cancelled.)"""
        return self.held.lost

    @property
    def stopping(self) -> bool:
        """Whether the worker is to end. What has not ended when its time is over is given back, and done again."""
        return self._lane.stopping

    def extend(self, lease: Duration) -> None:
        """Renews the lease now, by so much, and by so much from then on: for handlers that may keep the whole process
        from running for longer than the queue's lease."""
        self._lane.prolong(self.held, seconds(lease))

    def reject(self, reason: str) -> None:
        """The job can never be done: it goes to the queue's dead letter topic, with the reason. Where there is none, it
        is tried again."""
        self._said = Outcome(Kind.REJECT, reason)

    def retry(self, in_: Duration | None = None, reason: str | None = None) -> None:
        """The job is to be tried again, after `in_` or the queue's backoff."""
        self._said = Outcome(Kind.NACK, reason, None if in_ is None else round(seconds(in_) * 1000))

    def progress(self, **what: Any) -> None:
        """Logs how far the job has come, with queue, seq and deliveries."""
        self._lane.log_progress(self.held, what)

    @property
    def said(self) -> Outcome | None:
        """What `reject` or `retry` have said."""
        return self._said
