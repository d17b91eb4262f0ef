"""The tail cache: bytes of the newest batches, so that reads near the head need no disk.

The bytes come from the encoder, which computed their checksums, and have never left memory. The oldest go first.
Batches of ephemeral logs are not counted here: they exist only in memory.
"""

from __future__ import annotations

from collections import deque

from storage.state.log import Log

#: Memory of a batch beside its bytes (CPython 3.11, measured); most of the memory of a small batch.
ENTRY_BYTES = 248


class TailCache:
    """At most `max_bytes` of memory for batches, over all logs."""

    __slots__ = ("_entries", "bytes", "max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        self._entries: deque[tuple[Log, int, int]] = deque()

    def add(self, log: Log, first_seq: int, payload: bytes, offset: int) -> None:
        """Keep a committed batch; its first Append frame begins at `offset` of `payload`."""
        log.cached[first_seq] = (payload, offset)
        size = len(payload) + ENTRY_BYTES
        self._entries.append((log, first_seq, size))
        self.bytes += size
        while self.bytes > self.max_bytes:
            old, seq, size = self._entries.popleft()
            old.cached.pop(seq, None)
            self.bytes -= size
