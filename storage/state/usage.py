"""What the logs of an engine have in common. A value that each of them knows."""

from __future__ import annotations

from storage.state.manifest import Access
from storage.state.traffic import Traffic


class Usage:
    """What all logs of an engine hold together; bytes and keys are of the assigned view."""

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
        #: During a replay: segments named by frames may be gone by now, so nobody looks into them before its end.
        self.replaying = False
        #: How logs look into their segments, blocking.
        self.access: Access | None = None
        self.bytes = 0
        self.corrupt_reads = 0
        self.unreadable_reads = 0
        self.ephemeral_bytes = 0
        self.keys = 0
        #: Idempotent producers that logs know, and those that were forgotten early, because there were too many.
        self.producers = 0
        self.producers_forgotten = 0
        self.traffic = Traffic()
        #: Consumers of all topics.
        self.consumers = 0
