"""How refusals are described in the OpenAPI document."""

from __future__ import annotations

from typing import Any

from broker.http.errors import status_of
from schemas.errors import ErrorAnswer


def refusals(*codes: str) -> dict[int | str, dict[str, Any]]:
    """The responses of an operation for these error codes, by status."""
    by_status: dict[int, list[str]] = {}
    for code in codes:
        by_status.setdefault(status_of(code), []).append(code)
    return {
        status: {"model": ErrorAnswer, "description": " or ".join(f"`{code}`" for code in here)}
        for status, here in by_status.items()
    }
