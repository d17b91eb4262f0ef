"""The refusal of a write under pressure."""

from __future__ import annotations

from storage import RequestError


class UnderPressure(RequestError):
    """The broker is overloaded with writes; nothing was stored. Retry later."""

    code = "throttled"

    def __init__(self, retry_after_ms: int) -> None:
        super().__init__(retry_after_ms=retry_after_ms)
