"""Totals over the logs of an engine. Each log has this value."""

from __future__ import annotations

from storage.state.manifest import Access
from storage.state.traffic import Traffic


class Usage:
    """What all logs of an engine use; bytes and keys are of the assigned view."""

    __slots__ = (
        "access",
        "bytes",
        "consumers",
        "corrupt_reads",
        "ephemeral_bytes",
        "keys",
        "producers",
        "producers_forgotten",
        "replaying",
        "traffic",
        "unreadable_reads",
    )

    def __init__(self) -> None:
        #: During a replay: segments named by frames may be gone by now, so nothing reads them before its end.
        self.replaying = False
        #: Blocking reads of segments, for logs.
        self.access: Access | None = None
        self.bytes = 0
        self.corrupt_reads = 0
        self.unreadable_reads = 0
        self.ephemeral_bytes = 0
        self.keys = 0
        #: Idempotent producers known, and producers forgotten early because there were too many.
        self.producers = 0
        self.producers_forgotten = 0
        self.traffic = Traffic()
        #: Consumers of all topics.
        self.consumers = 0
