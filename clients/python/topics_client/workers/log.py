"""The log of workers: events with fields, through the standard library's logging, which the program configures."""

from __future__ import annotations

import logging
from typing import Any

import msgspec

NAME = "topics_client.worker"


class Log:
    """`event` is the message. The fields come after it, and are in `record.fields` for handlers."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def info(self, event: str, **fields: Any) -> None:
        self._emit(logging.INFO, event, None, fields)

    def warning(self, event: str, exc_info: BaseException | None = None, **fields: Any) -> None:
        self._emit(logging.WARNING, event, exc_info, fields)

    def _emit(self, level: int, event: str, error: BaseException | None, fields: dict[str, Any]) -> None:
        if self._logger.isEnabledFor(level):
            text = " ".join(f"{name}={value}" for name, value in fields.items())
            extra = {"event": event, "fields": fields}
            self._logger.log(level, "%s %s", event, text, exc_info=error, extra=extra)


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, event, and the fields of the event."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = getattr(record, "fields", {})
        line = {
            "timestamp": self.formatTime(record, "%Y-%m-%dT%H:%M:%S"),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", None) or record.getMessage(),
            **fields,
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=repr).decode()


log = Log(logging.getLogger(NAME))
