"""The outcome of a write that has no task of its own. Source: architecture.md (the path of one record)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from storage.append import Write
from storage.errors import StorageError
from storage.records import Appended


class Settling:
    """The outcome of a write that nobody awaits: a callback is told. It must not raise."""

    __slots__ = ("_settled", "_write")

    def __init__(self, write: Write, settled: Callable[[Appended | Exception], None]) -> None:
        self._write = write
        self._settled = settled

    def done(self) -> bool:
        return False

    def set_result(self, result: Any, /) -> None:
        outcome: Appended | Exception
        try:
            outcome = self._write.finish()
        except Exception as error:  # where `run` would raise it; other outcomes, told behind this one, must be told
            outcome = error
        self._tell(outcome)

    def set_exception(self, exception: StorageError, /) -> None:
        self._tell(exception)

    def _tell(self, outcome: Appended | Exception) -> None:
        # It leads back here: a circle would hold the records, in three forms, until the collector comes to it.
        self._write.submission = None
        self._settled(outcome)
