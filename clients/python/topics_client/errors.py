"""Every error the client raises. `str(error)` says what happened and what to do about it.

TopicsError                  `outcome` says whether anything may have happened at the broker
  ConnectionFailed           no answer came back: nobody listens there, the line broke, or time ran out
  BufferFull                 a producer took no record: its buffer stayed full
  ProducerClosed             a producer took no record: it is closed
  DeadlineExceeded           the time of `within` is over
  BrokerTooOld               `check_version` found a broker that does not know every call of this client
  UnexpectedAnswer           something answered, but not the way a topics broker does
  ApiError                   the broker said no: code, message, detail, status
    InvalidRequest           400, 405, 406, 413, 415   also raised here, before anything is sent (status None)
    Unauthorized             401
    Forbidden                403
    NotFound                 404   record, router, consumer
      TopicNotFound
      RouterNotFound
      ConsumerNotFound
    Conflict                 409, 412
      SeqConflict            detail: expected_seq, head_seq
      EpochConflict          the topic was created again, restored or salvaged; detail.epoch
      IdempotencyConflict    the key was used before with other records
      NotAQueue              the topic is a log
      LeaseLost              detail.seqs; `settled`: what was done for the others
      RouterCycle            detail.cycle: the topics it would run through
    TopicFull                422
    Throttled                429   detail: limit and max, or retry_after_ms
    BrokerFault              500   a fault of the broker or of its disk
    Unavailable              503   also 502 and 504, from a proxy
      NotReady               recovering, or shutting down
    StorageFull              507
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    from topics_client.values import Settled

Outcome = Literal["none", "unknown"]

#: Limits that stay reached until something is deleted. A short wait does not help.
STANDING_LIMITS = frozenset({"max_topics", "max_partitions", "max_routers", "max_consumers", "max_total_bytes"})


class TopicsError(Exception):
    """Something went wrong between this program and the broker."""

    #: What to do about it, as a sentence; "" if the message suffices.
    advice: ClassVar[str] = ""

    def __init__(self, message: str, *, outcome: Outcome = "none") -> None:
        self.message = message
        #: "none": the broker changed nothing. "unknown": it may have carried out the call.
        self.outcome: Outcome = outcome
        #: How often the call was made, and for how many seconds, before this error was final.
        self.tries = 1
        self.tried_for_s = 0.0
        super().__init__(message)

    @property
    def transient(self) -> bool:
        """Whether the same call may succeed a moment later."""
        return False

    def __str__(self) -> str:
        tried = f"Gave up after {self.tries} tries in {self.tried_for_s:.1f} s." if self.tries > 1 else ""
        return " ".join(part for part in (self.message, tried, self.advice) if part)


class ConnectionFailed(TopicsError):
    """No answer came back."""

    advice = "Check that the broker runs and that the URL is right (`topics serve` starts one)."

    @property
    def transient(self) -> bool:
        """True: the broker may be back in a moment."""
        return True


class BufferFull(TopicsError):
    """The producer's buffer had no room within its time, and did not take the record."""

    advice = "Send more slowly, or give the producer a larger buffer_bytes or max_block_s."

    @property
    def transient(self) -> bool:
        """True: every stored batch makes room."""
        return True


class ProducerClosed(TopicsError):
    """The producer takes no more records."""


class DeadlineExceeded(TopicsError):
    """The time of `within` is over. `__cause__` is the error of the last attempt, if there was one."""

    @classmethod
    def after(cls, last: TopicsError, *, outcome: Outcome) -> DeadlineExceeded:
        """For a call whose last attempt ended with this error, and after which there is no time for another."""
        made = cls(f"The deadline leaves no time for another try. {last.message}", outcome=outcome)
        made.tries, made.tried_for_s = last.tries, last.tried_for_s
        return made


class BrokerTooOld(TopicsError):
    """The broker is older than this client needs. `version`: that of the broker; `lowest`: the first that suffices."""

    advice = "Upgrade the broker, or use the client of its version."

    def __init__(self, *, version: str, lowest: str) -> None:
        super().__init__(f"The broker has version {version}, and this client needs {lowest} or newer.")
        self.version = version
        self.lowest = lowest


class UnexpectedAnswer(TopicsError):
    """The answer does not come from this API."""

    advice = "Check that the URL is that of a topics broker, and that no proxy answers in its place."


class ApiError(TopicsError):
    """The broker refused. `code` is one of the API's codes, `detail` has machine-readable details."""

    default_code: ClassVar[str] = "internal"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        detail: dict[str, Any] | None = None,
        status: int | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code or self.default_code
        self.detail: dict[str, Any] = detail or {}
        self.status = status
        #: How long the broker asks to wait before the next attempt, in seconds. None if it did not say.
        self.retry_after_s = retry_after_s


class InvalidRequest(ApiError):
    """The broker cannot carry out the request. detail.field names the wrong field, if it is a field."""

    default_code = "invalid_request"


class Unauthorized(ApiError):
    """The broker requires a key."""

    default_code = "unauthorized"
    advice = "Give a key of this broker: token=… in a program, --token or TOPICS_TOKEN on the command line."


class Forbidden(ApiError):
    """The key is valid, but does not permit this."""

    default_code = "forbidden"
    advice = "Use a key that has the scope and the topic prefix this call needs."


class NotFound(ApiError):
    """It does not exist, or no longer exists. For a record, detail.reason says why."""

    default_code = "not_found"


class TopicNotFound(NotFound):
    """There is no topic of that name."""

    default_code = "topic_not_found"
    advice = "Check the name (`topics list` shows what there is); the first append or `topics put` creates a topic."


class RouterNotFound(NotFound):
    """There is no router of that name."""

    default_code = "router_not_found"
    advice = "Check the name (`topics routers list` shows what there is)."


class ConsumerNotFound(NotFound):
    """The topic has no consumer of that name."""

    default_code = "consumer_not_found"
    advice = "Check the name (`topics consumers list TOPIC` shows what there is)."


class Conflict(ApiError):
    """The request conflicts with the current state."""

    default_code = "topic_exists_incompatible"


class SeqConflict(Conflict):
    """Another writer was first: the topic's last seq is not the expected one."""

    default_code = "seq_conflict"
    advice = "Read what was appended since, then append with expected_seq set to the head_seq in the detail."


class EpochConflict(Conflict):
    """The position belongs to the topic before it was created again, restored or salvaged. detail.epoch is the new
    epoch."""

    default_code = "epoch_conflict"
    advice = "Read the topic from its beginning, or from where its consumer stands now."


class IdempotencyConflict(Conflict):
    """The idempotency key was used before, for other records."""

    default_code = "idempotency_conflict"
    advice = "Use another key for other records; repeat a key only with exactly the records it was first used for."


class NotAQueue(Conflict):
    """The topic is a log: it has records to read, and no jobs to claim."""

    default_code = "not_a_queue"
    advice = "Only topics made with the type queue have jobs (`topics put NAME --type queue`)."


class LeaseLost(Conflict):
    """A job of the call is not (or no longer) leased to its caller; detail.seqs names these jobs.

    A strict call did nothing. Otherwise the call was carried out for all other jobs: `settled` is its answer.
    """

    default_code = "lease_lost"
    advice = "Others may hold those jobs now, and do them: do not count on what was done here."
    settled: Settled | None = None


class RouterCycle(Conflict):
    """The router would lead back to its source."""

    default_code = "router_cycle"
    advice = "Set allow_cycle (`--allow-cycle`) if copies may run in a circle; they stop after 7 hops."


class TopicFull(ApiError):
    """The topic is at its cap and rejects new records."""

    default_code = "topic_full"
    advice = "Delete records, raise the topic's cap, or set discard to old."


class Throttled(ApiError):
    """The broker asks for fewer or slower requests."""

    default_code = "throttled"

    @property
    def limit(self) -> str | None:
        """The name of the limit that is reached. None for pressure, which passes."""
        limit = self.detail.get("limit")
        return limit if isinstance(limit, str) else None

    @property
    def transient(self) -> bool:
        """False for a limit that stays reached until something is deleted."""
        return self.limit not in STANDING_LIMITS


class BrokerFault(ApiError):
    """A fault of the broker or of its disk, not of the request."""

    default_code = "internal"
    advice = "The broker's log says more."

    def __init__(self, message: str, **particulars: Any) -> None:
        super().__init__(message, **particulars)
        self.outcome = "none" if self.code == "segment_corrupt" else "unknown"


class Unavailable(ApiError):
    """The broker cannot do this now."""

    default_code = "wal_saturated"
    advice = "Try again in a moment."

    def __init__(self, message: str, **particulars: Any) -> None:
        super().__init__(message, **particulars)
        # After a failure of its log, the broker does not know whether the last write reached the disk. Neither does a
        # proxy. A call cut off by a shutdown says so.
        known = self.status == 503 and self.code != "storage_failed" and self.detail.get("outcome") != "unknown"
        self.outcome = "none" if known else "unknown"

    @property
    def transient(self) -> bool:
        """True: the condition passes, or a restart ends it."""
        return True


class NotReady(Unavailable):
    """The broker is still recovering, or is shutting down."""

    default_code = "not_ready"
    advice = "Try again once `GET /v0/ready` answers 200."


class StorageFull(ApiError):
    """The broker's disk is full."""

    default_code = "storage_full"
    advice = "Free space on the broker's disk or delete records and topics; writing resumes by itself."

    @property
    def transient(self) -> bool:
        """True: space may be made at any time."""
        return True


_BY_CODE: dict[str, type[ApiError]] = {
    "topic_not_found": TopicNotFound,
    "router_not_found": RouterNotFound,
    "consumer_not_found": ConsumerNotFound,
    "router_cycle": RouterCycle,
    "seq_conflict": SeqConflict,
    "epoch_conflict": EpochConflict,
    "idempotency_conflict": IdempotencyConflict,
    "not_a_queue": NotAQueue,
    "lease_lost": LeaseLost,
    "not_ready": NotReady,
    "shutting_down": NotReady,
}
_BY_STATUS: dict[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    412: Conflict,
    422: TopicFull,
    429: Throttled,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
    507: StorageFull,
}


def api_error(
    status: int, code: str, message: str, detail: dict[str, Any] | None, retry_after_s: float | None
) -> ApiError:
    """The error of the tree above for a refusal; unknown codes are classified by their status."""
    fallback = BrokerFault if status >= 500 else InvalidRequest
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status, fallback)
    return kind(message, code=code, detail=detail, status=status, retry_after_s=retry_after_s)
