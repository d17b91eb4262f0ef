"""Client of a topics broker: `Client`, `AsyncClient`, and the values and errors that they use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topics_client.async_producer import AsyncProducer
    from topics_client.asynchronous import AsyncClient
    from topics_client.attempts import Attempt, Instrument
    from topics_client.blocking import Client
    from topics_client.consumer import AsyncConsumer, Consumer
    from topics_client.consumer_values import (
        ConsumerChanges,
        ConsumerDeleted,
        ConsumerOptions,
        ConsumerPut,
        ConsumerRead,
        ConsumerState,
    )
    from topics_client.consumers import AsyncConsumers, Consumers
    from topics_client.deadlines import within
    from topics_client.errors import (
        ApiError,
        BrokerFault,
        BrokerTooOld,
        BufferFull,
        Conflict,
        ConnectionFailed,
        ConsumerNotFound,
        DeadlineExceeded,
        EpochConflict,
        Forbidden,
        IdempotencyConflict,
        InvalidRequest,
        LeaseLost,
        NotAQueue,
        NotFound,
        NotReady,
        ProducerClosed,
        RouterCycle,
        RouterNotFound,
        SeqConflict,
        StorageFull,
        Throttled,
        TopicFull,
        TopicNotFound,
        TopicsError,
        Unauthorized,
        Unavailable,
        UnexpectedAnswer,
    )
    from topics_client.outcomes import AsyncSent, Sent, Stored
    from topics_client.producer import Producer
    from topics_client.retry import Pause, RetryBudget, RetryPolicy
    from topics_client.router_values import Router, RouterDeleted, RouterOptions, RouterPut
    from topics_client.values import (
        Appended,
        Cell,
        Claimed,
        Cluster,
        ClusterNode,
        Diff,
        Gateway,
        Health,
        Job,
        JobSummary,
        NewRecord,
        OfflinePartition,
        PartitionState,
        Paused,
        Purged,
        QueueSummary,
        Ready,
        Record,
        RecordsDeleted,
        Redriven,
        Settled,
        Takeover,
        Tombstone,
        TopicDeleted,
        TopicPut,
        TopicSettings,
        TopicState,
        TopicSummary,
        Watched,
    )
    from topics_client.workers import Backoff, JobContext, Worker

#: As the broker that it was tested with.
__version__ = "0.1.0"

__all__ = [
    "ApiError",
    "Appended",
    "AsyncClient",
    "AsyncConsumer",
    "AsyncConsumers",
    "AsyncProducer",
    "AsyncSent",
    "Attempt",
    "Backoff",
    "BrokerFault",
    "BrokerTooOld",
    "BufferFull",
    "Cell",
    "Claimed",
    "Client",
    "Cluster",
    "ClusterNode",
    "Conflict",
    "ConnectionFailed",
    "Consumer",
    "ConsumerChanges",
    "ConsumerDeleted",
    "ConsumerNotFound",
    "ConsumerOptions",
    "ConsumerPut",
    "ConsumerRead",
    "ConsumerState",
    "Consumers",
    "DeadlineExceeded",
    "Diff",
    "EpochConflict",
    "Forbidden",
    "Gateway",
    "Health",
    "IdempotencyConflict",
    "Instrument",
    "InvalidRequest",
    "Job",
    "JobContext",
    "JobSummary",
    "LeaseLost",
    "NewRecord",
    "NotAQueue",
    "NotFound",
    "NotReady",
    "OfflinePartition",
    "PartitionState",
    "Pause",
    "Paused",
    "Producer",
    "ProducerClosed",
    "Purged",
    "QueueSummary",
    "Ready",
    "Record",
    "RecordsDeleted",
    "Redriven",
    "RetryBudget",
    "RetryPolicy",
    "Router",
    "RouterCycle",
    "RouterDeleted",
    "RouterNotFound",
    "RouterOptions",
    "RouterPut",
    "Sent",
    "SeqConflict",
    "Settled",
    "StorageFull",
    "Stored",
    "Takeover",
    "Throttled",
    "Tombstone",
    "TopicDeleted",
    "TopicFull",
    "TopicNotFound",
    "TopicPut",
    "TopicSettings",
    "TopicState",
    "TopicSummary",
    "TopicsError",
    "Unauthorized",
    "Unavailable",
    "UnexpectedAnswer",
    "Watched",
    "Worker",
    "__version__",
    "within",
]

#: The module of each name. A module is loaded when one of its names is first used, so a program that only writes does
#: not load asyncio, and the command line does not load httpx.
_MODULES = {
    "async_producer": "AsyncProducer",
    "asynchronous": "AsyncClient",
    "attempts": "Attempt Instrument",
    "blocking": "Client",
    "consumer": "AsyncConsumer Consumer",
    "consumer_values": "ConsumerChanges ConsumerDeleted ConsumerOptions ConsumerPut ConsumerRead ConsumerState",
    "consumers": "AsyncConsumers Consumers",
    "deadlines": "within",
    "errors": """
        ApiError BrokerFault BrokerTooOld BufferFull Conflict ConnectionFailed ConsumerNotFound
        DeadlineExceeded EpochConflict Forbidden IdempotencyConflict InvalidRequest LeaseLost NotAQueue NotFound
        NotReady ProducerClosed RouterCycle RouterNotFound SeqConflict StorageFull
        Throttled TopicFull TopicNotFound TopicsError Unauthorized Unavailable
        UnexpectedAnswer
    """,
    "outcomes": "AsyncSent Sent Stored",
    "producer": "Producer",
    "retry": "Pause RetryBudget RetryPolicy",
    "router_values": "Router RouterDeleted RouterOptions RouterPut",
    "values": """
        Appended Cell Claimed Cluster ClusterNode Diff Gateway Health Job JobSummary
        NewRecord OfflinePartition PartitionState Paused Purged Ready Record
        RecordsDeleted Redriven Settled Tombstone TopicDeleted TopicPut
        QueueSummary Takeover TopicSettings TopicState TopicSummary Watched
    """,
    "workers": "Backoff JobContext Worker",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """Loads a name of `__all__` (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
