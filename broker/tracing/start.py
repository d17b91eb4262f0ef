"""Starts tracing if TOPICS_TRACING is set. Otherwise OpenTelemetry is not imported."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from broker.settings import PREFIX, Settings, SettingsError

if TYPE_CHECKING:
    from broker.tracing.spans import Tracing

_MISSING = f"{PREFIX}TRACING needs the extra \"otel\": pip install 'topics-broker[otel]'."


def start(settings: Settings) -> Tracing | None:
    """The tracer, or None while tracing is off. Raises SettingsError."""
    if not settings.tracing:
        return None
    try:
        from broker.tracing.provider import NoExporter, provider
        from broker.tracing.spans import Tracing
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "opentelemetry":
            raise
        raise SettingsError(_MISSING) from None
    try:
        made = provider(os.environ)
    except NoExporter as error:
        raise SettingsError(str(error)) from None
    return None if made is None else Tracing(made)
