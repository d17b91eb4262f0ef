"""Durations in the forms that people write."""

from __future__ import annotations

import re
from datetime import timedelta

from topics_client.errors import InvalidRequest

Duration = float | int | str | timedelta

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_TEXT = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")


def seconds(duration: Duration) -> float:
    """A number of seconds, a timedelta, or text like 30s, 1.5h, 200ms. Raises InvalidRequest."""
    if isinstance(duration, timedelta):
        found = duration.total_seconds()
    elif isinstance(duration, str):
        match = _TEXT.fullmatch(duration.strip())
        if match is None:
            raise InvalidRequest(f"{duration!r} is not a duration: write one like 30s, 200ms, 5m, 1.5h or 2d.")
        found = float(match[1]) * _UNITS[match[2]]
    else:
        found = float(duration)
    if not 0 <= found < float("inf"):
        raise InvalidRequest(f"{duration!r} is not a duration.")
    return found
