"""The refusal of a write under pressure."""

from __future__ import annotations

from storage import RequestError


class UnderPressure(RequestError):
    """More is written than the broker can take; nothing was stored. Retry after a moment."""

    code = "throttled"

    def __init__(self, retry_after_ms: int) -> None:
        super().__init__(retry_after_ms=retry_after_ms)
