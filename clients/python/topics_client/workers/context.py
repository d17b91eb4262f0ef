"""What a handler can learn about its job, and the outcomes that it can set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from topics_client.values import Job
from topics_client.workers.durations import Duration, seconds
from topics_client.workers.state import Held, Kind, Outcome

if TYPE_CHECKING:
    from topics_client.workers.lane import Lane


class JobContext:
    """A job besides its data, and its outcome.

    If the handler returns, the job is done; if it raises, the job failed. `reject` and `retry` set another outcome; the
    last one set when the handler ends counts. All methods may be called from coroutines: none of them waits.
    """

    __slots__ = ("_lane", "_said", "held")

    def __init__(self, lane: Lane, held: Held) -> None:
        self._lane = lane
        self._said: Outcome | None = None
        #: The context of the worker.
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
        """How often the job was delivered, this time included."""
        return self.held.job.deliveries

    @property
    def deadline(self) -> float:
        """When the lease ends unless it is renewed (the worker renews it), in seconds of time.monotonic()."""
        return self.held.expires

    @property
    def lost(self) -> bool:
        """Whether the lease has ended. Then another worker may have the job, and the outcome of this handler is not
        sent. A handler that is not a coroutine function should check this from time to time, and end. (Coroutines are
        cancelled.)"""
        return self.held.lost

    @property
    def stopping(self) -> bool:
        """Whether the worker is stopping. Handlers that have not ended when the grace period is over run in vain: their
        jobs are given back, and done again."""
        return self._lane.stopping

    def extend(self, lease: Duration) -> None:
        """Renew the lease now to last this long, and again each time from now on. For handlers that may block the whole
        process for longer than the queue's lease."""
        self._lane.prolong(self.held, seconds(lease))

    def reject(self, reason: str) -> None:
        """The job can never be done: it goes to the queue's dead letter topic, with the reason. Without such a topic it
        is tried again."""
        self._said = Outcome(Kind.REJECT, reason)

    def retry(self, in_: Duration | None = None, reason: str | None = None) -> None:
        """The job must be tried again, after `in_`, or else as after an exception."""
        self._said = Outcome(Kind.NACK, reason, None if in_ is None else round(seconds(in_) * 1000))

    def progress(self, **what: Any) -> None:
        """Log the progress of the job, with queue, seq and deliveries."""
        self._lane.log_progress(self.held, what)

    @property
    def said(self) -> Outcome | None:
        """The outcome set by `reject` or `retry`."""
        return self._said
