"""How much of a log is still to be read. Source: storage.md §9 (unread counts)."""

from __future__ import annotations

from storage.state.log import Log


def unread(log: Log, cursor_seq: int) -> int:
    """Live records behind a cursor. Costs no more where records are retained that lie in front of it."""
    seq = max(cursor_seq + 1, log.marks.live_floor)
    if seq > log.head:
        return 0
    return log.held.count_from(seq, log.head + 1)
