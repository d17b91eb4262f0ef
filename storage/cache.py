"""The tail cache: bytes of the newest batches, so that readers close to head never touch the disk.

Bytes come from the encoder, which computed their checksums, and have never left memory. Oldest first out.
Batches of ephemeral logs are not accounted here: memory is the only place they are in.
"""

from __future__ import annotations

from collections import deque

from storage.log import Log


class TailCache:
    """At most `max_bytes` of batches, over all logs."""

    __slots__ = ("_entries", "bytes", "max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        self._entries: deque[tuple[Log, int, int]] = deque()

    def add(self, log: Log, first_seq: int, payload: bytes, offset: int) -> None:
        """Keep a committed batch; its first Append frame begins at `offset` of `payload`."""
        log.cached[first_seq] = (payload, offset)
        self._entries.append((log, first_seq, len(payload)))
        self.bytes += len(payload)
        while self.bytes > self.max_bytes:
            old, seq, size = self._entries.popleft()
            old.cached.pop(seq, None)
            self.bytes -= size
