"""Spans of the broker's work for OpenTelemetry (the extra `otel`). Off unless TOPICS_TRACING is set: `Broker.tracing`
is then None, and nothing else of this package runs."""

from typing import TYPE_CHECKING

from broker.tracing import notes
from broker.tracing.start import start

if TYPE_CHECKING:
    from broker.tracing.notes import Note
    from broker.tracing.spans import Tracing

__all__ = [
    "Note",
    "Tracing",
    "notes",
    "start",
]
