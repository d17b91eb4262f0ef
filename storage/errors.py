"""Every error storage raises.

StorageError                     code, sentence, detail; `outcome` says whether anything happened
  RequestError                   the caller's fault; nothing happened
    InvalidRequest               invalid_request         a field is wrong; detail.field names it
    BatchTooLarge                batch_too_large
    RecordTooLarge               record_too_large
    TopicNotFound                topic_not_found
    NotMine                      not_mine                detail: topic, cell
    RecordNotFound               not_found               detail.reason says why
    RouterNotFound               router_not_found
    ConsumerNotFound             consumer_not_found
    RouterCycle                  router_cycle            detail.cycle
    TopicIncompatible            topic_exists_incompatible
    TopicNotEmpty                topic_not_empty
    NotAQueue                    not_a_queue
    LeaseLost                    lease_lost              detail.seqs
    SeqConflict                  seq_conflict            detail: expected_seq, head_seq
    IdempotencyConflict          idempotency_conflict
    OutOfOrderSequence           out_of_order_sequence   detail: producer_id, base_sequence
    InvalidProducerEpoch         invalid_producer_epoch  detail: producer_id, epoch
    TopicFull                    topic_full
    LimitReached                 throttled               detail: limit, max
  Unavailable                    not now; retrying is sensible
    NotReady                     not_ready               nothing happened
    ShuttingDown                 shutting_down           nothing happened
    WalSaturated                 wal_saturated           nothing happened
    StorageFull                  storage_full            nothing happened
    StorageFailed                storage_failed          outcome unknown: only a restart can tell
    Unreadable                   storage_failed          nothing was changed; detail: topic
      SegmentUnreadable                                  segment, tier, from_seq, to_seq; of a read seq, too
      LogUnreadable                                      seq, file
  DataError                      the bytes on disk are not what was written
    RecordCorrupt                segment_corrupt         detail: topic, file, offset; seq or from_seq, to_seq
      SegmentIncomplete                                  from_seq, to_seq; of a read seq, too
    WalCorrupt                   refuse to start         file, offset
    MetadataLost                 refuse to start
    UnsupportedFormat            refuse to start         written by a newer version
  OpenError                      the directory cannot be opened
    AlreadyLocked                another process has it
      AlreadyOpen                this process has it
    OtherProcess                 it is open in the process this one was forked from
"""

from __future__ import annotations

from typing import Any, ClassVar


class StorageError(Exception):
    """Something went wrong in storage."""

    code: ClassVar[str] = "internal"
    #: "none": nothing was stored. "unknown": it may or may not be there after the next start.
    outcome: ClassVar[str] = "none"

    def __init__(self, message: str | None = None, **detail: Any) -> None:
        self.message = message or (type(self).__doc__ or "").strip()
        self.detail = detail
        super().__init__(self.message)


class RequestError(StorageError):
    """The request cannot be carried out in this form."""

    code = "invalid_request"


class InvalidRequest(RequestError):
    """A field of the request is wrong."""


class BatchTooLarge(RequestError):
    """The request carries more records than one write may have."""

    code = "batch_too_large"


class RecordTooLarge(RequestError):
    """A record is larger than this topic can ever hold."""

    code = "record_too_large"


class TopicNotFound(RequestError):
    """There is no topic of that name."""

    code = "topic_not_found"

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no topic named {name!r}.", topic=name)


class NotMine(RequestError):
    """Another cell of the set has this topic, or decides about its name."""

    code = "not_mine"

    def __init__(self, name: str, cell: int) -> None:
        super().__init__(f"Cell {cell} decides about {name!r}.", topic=name, cell=cell)


class RecordNotFound(RequestError):
    """There is no record with that seq."""

    code = "not_found"


class RouterNotFound(RequestError):
    """There is no router of that name."""

    code = "router_not_found"

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no router named {name!r}.", router=name)


class ConsumerNotFound(RequestError):
    """The topic has no consumer of that name."""

    code = "consumer_not_found"

    def __init__(self, topic: str, name: str) -> None:
        super().__init__(f"{topic} has no consumer named {name!r}.", topic=topic, consumer=name)


class RouterCycle(RequestError):
    """The router would lead back to its source."""

    code = "router_cycle"


class TopicIncompatible(RequestError):
    """The topic, or router, exists with a setting that cannot be changed to the requested one."""

    code = "topic_exists_incompatible"


class TopicNotEmpty(RequestError):
    """The topic still holds records."""

    code = "topic_not_empty"


class NotAQueue(RequestError):
    """The topic is a log; only queues have jobs."""

    code = "not_a_queue"


class LeaseLost(RequestError):
    """A lease is not, or no longer, the caller's; nothing was done."""

    code = "lease_lost"


class SeqConflict(RequestError):
    """The topic's last assigned seq is not the expected one."""

    code = "seq_conflict"


class EpochConflict(RequestError):
    """The caller has an epoch of the log from before it was created again, restored or salvaged."""

    code = "epoch_conflict"

    def __init__(self, topic: str, expected: int, epoch: int) -> None:
        super().__init__(
            f"{topic} has the epoch {epoch}, not {expected}: a position from an earlier epoch has no meaning now.",
            topic=topic,
            epoch=epoch,
        )


class IdempotencyConflict(RequestError):
    """The idempotency key was used before with another payload."""

    code = "idempotency_conflict"


class OutOfOrderSequence(RequestError):
    """The batch does not follow the last one of its producer."""

    code = "out_of_order_sequence"


class InvalidProducerEpoch(RequestError):
    """A newer epoch of the producer has written already."""

    code = "invalid_producer_epoch"


class TopicFull(RequestError):
    """The topic is at its cap and rejects new records."""

    code = "topic_full"


class LimitReached(RequestError):
    """A limit of the broker is reached."""

    code = "throttled"

    def __init__(self, message: str, *, limit: str, max: int) -> None:
        super().__init__(message, limit=limit, max=max)


class Unavailable(StorageError):
    """The engine cannot do this now."""


class NotReady(Unavailable):
    """The engine is still recovering."""

    code = "not_ready"


class ShuttingDown(Unavailable):
    """The engine is shutting down."""

    code = "shutting_down"


class WalSaturated(Unavailable):
    """The write-ahead log cannot keep up; nothing was stored. Retry after a moment."""

    code = "wal_saturated"


class StorageFull(Unavailable):
    """The disk is full, and nothing was stored. Deletes and reads still work. Writes resume when there is space."""

    code = "storage_full"


class StorageFailed(Unavailable):
    """A write or sync of the log failed, and its shard has stopped until the next start."""

    code = "storage_failed"
    outcome = "unknown"

    def __init__(self, message: str | None = None, **detail: Any) -> None:
        super().__init__(message, **{"outcome": "unknown", **detail})


class Unreadable(Unavailable):
    """The records exist, but the disk cannot read them; nothing was changed. Retry after a moment."""

    code = "storage_failed"


class SegmentUnreadable(Unreadable):
    """The disk, or the cold store, cannot read a part of a segment that a request needs."""


class LogUnreadable(Unreadable):
    """The disk cannot read a part of the write-ahead log that a request needs."""


class DataError(StorageError):
    """Stored bytes are not what was written."""


class RecordCorrupt(DataError):
    """A stored record fails its checksum and is not served."""

    code = "segment_corrupt"


class SegmentIncomplete(RecordCorrupt):
    """A file of a segment is missing or too short: the records after its end are not there."""


class WalCorrupt(DataError):
    """The write-ahead log is damaged where it had been synced."""

    def __init__(self, message: str, *, file: str, offset: int) -> None:
        super().__init__(message, file=file, offset=offset)
        self.file = file
        self.offset = offset


class MetadataLost(DataError):
    """No snapshot can be read, and the log no longer begins at its first file."""


class UnsupportedFormat(DataError):
    """The data was written by a newer version of this program."""


class OpenError(StorageError):
    """The data directory cannot be opened."""


class AlreadyLocked(OpenError):
    """Another process has this data directory open."""


class AlreadyOpen(AlreadyLocked):
    """This process has this data directory open already: use that engine."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} is open in this process already: use the engine that has it.", path=path)


class ColdNotConfigured(OpenError):
    """The directory has segments in a cold tier, and none is configured."""


class OtherProcess(OpenError):
    """The engine is open in the process that this one was forked from. Open it in one process only."""
