"""What a WebSocket answers commands with, other than records: results and refusals.

Source: docs/reference/api.md#live-reading.
"""

from __future__ import annotations

from typing import NamedTuple

import structlog
from msgspec import Raw

from broker.live import Watcher, frames
from broker.metrics import HttpMetrics
from storage import StorageError

_log = structlog.get_logger("broker.http")


class Refused(Exception):
    """A message that is no command."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class ReplyTo(NamedTuple):
    """What an answer takes from its command: the word that says which message it is, and the request_id."""

    word: str
    request_id: Raw | None = None


class Wording:
    """The word that a connection used last: what it is sent without having asked says that, too."""

    def __init__(self) -> None:
        self.word = frames.EITHER


class Replies:
    """Of one connection; in the order of the calls."""

    def __init__(self, watcher: Watcher[str], metrics: HttpMetrics) -> None:
        self._watcher = watcher
        self._metrics = metrics

    def say(self, kind: str, to: ReplyTo, **fields: object) -> None:
        self._watcher.say(frames.message(to.word, kind, to.request_id, **fields))

    def refuse(self, error: Exception, to: ReplyTo) -> None:
        """Say why a command was not carried out."""
        self._metrics.refused(error)
        if isinstance(error, Refused):
            self.say("error", to, code=error.code, message=error.message)
            return
        if not isinstance(error, StorageError) or error.code == "internal":
            _log.error("command_failed", exc_info=error)
            self.say("error", to, code="internal", message="The broker made a mistake; its log has more.")
            return
        detail = {"detail": error.detail} if error.detail else {}
        self.say("error", to, code=error.code, message=error.message, **detail)
