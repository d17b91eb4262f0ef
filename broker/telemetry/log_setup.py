"""Logging: one line per event, with fields, to stderr.

Payloads, keys and header values are never logged: tracebacks do not contain the values of variables.
"""

from __future__ import annotations

import logging
import sys

import structlog
from structlog.tracebacks import ExceptionDictTransformer

from broker.settings import LogFormat, LogLevel


def configure(level: LogLevel, form: LogFormat, process: str | None = None) -> None:
    """Set up structlog, and send the logs of libraries through it.

    `process`: the name of this process, for the logs of a set of cells, which come from several.
    """

    def named(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        if process is not None:
            event["process"] = process
        return event

    shared: list[structlog.typing.Processor] = [
        named,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_rendering(form)],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    # Its lower levels repeat our own events, or log every malformed request of a stranger.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    logging.getLogger("asyncio").addFilter(_no_strangers_bytes)


def _rendering(form: LogFormat) -> list[structlog.typing.Processor]:
    if form is LogFormat.JSON:
        return [
            structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False)),
            structlog.processors.JSONRenderer(),
        ]
    return [
        structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback, pad_event_to=24
        )
    ]


def _no_strangers_bytes(record: logging.LogRecord) -> bool:
    # The server decodes a path as ASCII, and closes the connection if it is not. That is not the broker's error.
    return not (record.exc_info and isinstance(record.exc_info[1], UnicodeDecodeError))
