"""The answers to the commands of a WebSocket, other than records: results and refusals.

Source: docs/reference/api.md#live-reading.
"""

from __future__ import annotations

from typing import NamedTuple

import structlog
from msgspec import Raw

from broker.live import Watcher, frames
from broker.telemetry import HttpMetrics
from storage import StorageError

_log = structlog.get_logger("broker.http")


class Refused(Exception):
    """The message is not a command."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class ReplyTo(NamedTuple):
    """What an answer repeats from its command: the key that names the kind (`op` or `type`), and the request_id."""

    word: str
    request_id: Raw | None = None


class Wording:
    """The key (`op` or `type`) that a connection used last; messages that it did not ask for use it too."""

    def __init__(self) -> None:
        self.word = frames.EITHER


class Replies:
    """The answers of one connection, sent in the order of the calls."""

    def __init__(self, watcher: Watcher[str], metrics: HttpMetrics) -> None:
        self._watcher = watcher
        self._metrics = metrics

    def send(self, kind: str, to: ReplyTo, **fields: object) -> None:
        self._watcher.send_notice(frames.message(to.word, kind, to.request_id, **fields))

    def refuse(self, error: Exception, to: ReplyTo) -> None:
        """Answer a command that was refused, with the reason."""
        self._metrics.refused(error)
        if isinstance(error, Refused):
            self.send("error", to, code=error.code, message=error.message)
            return
        if not isinstance(error, StorageError) or error.code == "internal":
            _log.error("command_failed", exc_info=error)
            self.send("error", to, code="internal", message="Internal error; see the broker's log.")
            return
        detail = {"detail": error.detail} if error.detail else {}
        self.send("error", to, code=error.code, message=error.message, **detail)
