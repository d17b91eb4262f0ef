"""A group's commit for a log: an offset, metadata and a leader epoch, stored beside the group's cursor. Pure.

Groups may commit an offset that no record has: beyond the head, or negative. A cursor is never there. It is at the
head, or before the oldest record, and the committed offset is stored beside it. So no record is reclaimed that such a
group may still read.

    value of the State frame         when
    none                             the cursor says everything
    the metadata                     the offset is the cursor's, and there is no leader epoch
    NUL [offset] "," [epoch] NUL …   otherwise; an offset only where it is not the cursor's, then the metadata

Source: docs/reference/format.md#state.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from storage.errors import InvalidRequest
from storage.state.catalog import Topic

_MIN, _MAX = -(1 << 63), (1 << 63) - 1
_PREFIX: Final = re.compile(rb"\0(-?[0-9]{1,19})?,([0-9]{1,10})?\0")


class CommittedOffset(NamedTuple):
    """`seq`: the committed offset, which is the seq of the last record that is done, or a value that names no
    record. `leader_epoch`: None when none was committed."""

    seq: int
    metadata: bytes | None = None
    leader_epoch: int | None = None

    def check(self) -> None:
        """Raises InvalidRequest for values that do not fit the frame."""
        if not _MIN <= self.seq <= _MAX:
            raise InvalidRequest("seq must be a signed number of 64 bits.", field="seq")
        if self.leader_epoch is not None and not 0 <= self.leader_epoch < 1 << 31:
            raise InvalidRequest("leader_epoch must be 0 to 2147483647.", field="leader_epoch")

    def cursor_in(self, topic: Topic) -> int:
        """Where the cursor is for this offset."""
        log = topic.log
        return log.marks.live_floor - 1 if self.seq < 0 else min(self.seq, log.head)

    def encode(self, cursor_seq: int) -> bytes | None:
        """The value stored beside a cursor at `cursor_seq`; None when none is needed."""
        metadata = self.metadata or b""
        if self.seq == cursor_seq and self.leader_epoch is None and not metadata.startswith(b"\0"):
            return self.metadata
        offset = b"" if self.seq == cursor_seq else b"%d" % self.seq
        epoch = b"" if self.leader_epoch is None else b"%d" % self.leader_epoch
        return b"\0%b,%b\0%b" % (offset, epoch, metadata)

    @classmethod
    def decode(cls, cursor_seq: int, value: bytes | None) -> CommittedOffset:
        """The committed offset, from a cursor at `cursor_seq` and the value stored beside it."""
        found = None if value is None else _PREFIX.match(value)
        if value is None or found is None:
            return cls(cursor_seq, value)
        offset, epoch = found.groups()
        metadata = value[found.end() :] or None
        return cls(cursor_seq if offset is None else int(offset), metadata, None if epoch is None else int(epoch))
