"""Columns of idempotency keys from their entries."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from storage.state.keys import KeyColumns, Remembered


def columns_of(entries: Sequence[Remembered]) -> KeyColumns:
    """Oldest first."""
    return KeyColumns(
        b"".join([each.digest for each in entries]),
        b"".join([each.hash for each in entries]),
        array("Q", [each.first_seq for each in entries]),
        array("I", [each.count for each in entries]),
        array("Q", [each.ts for each in entries]),
    )
