"""The outcome of a write that has no task of its own. Source: architecture.md (the path of one record)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from storage.errors import StorageError
from storage.log.append import Write
from storage.records.values import Appended


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
        self._end(outcome)

    def set_exception(self, exception: StorageError, /) -> None:
        self._end(exception)

    def _end(self, outcome: Appended | Exception) -> None:
        # The submission leads back here: left standing, the circle would keep the request's bytes until the garbage
        # collector comes by, and every request would have to be given fresh memory instead of its predecessor's.
        self._write.submission = None
        self._settled(outcome)
