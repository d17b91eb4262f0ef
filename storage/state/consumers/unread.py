"""Counts the unread records of a log.

Source: docs/reference/guarantees.md#consumers.
"""

from __future__ import annotations

from storage.state.log import Log


def unread(log: Log, cursor_seq: int) -> int:
    """Live records after a cursor. Retained records before it add no cost."""
    seq = max(cursor_seq + 1, log.marks.live_floor)
    if seq > log.head:
        return 0
    return log.held.count_from(seq, log.head + 1)
