"""The descriptions of refusals in the OpenAPI document."""

from __future__ import annotations

from typing import Any

from broker.auth import Rule
from broker.content import status_of
from schemas import ErrorAnswer


def refusals(*codes: str) -> dict[int | str, dict[str, Any]]:
    """The responses of an operation for these error codes, by status."""
    by_status: dict[int, list[str]] = {}
    for code in codes:
        by_status.setdefault(status_of(code), []).append(code)
    return {
        status: {"model": ErrorAnswer, "description": " or ".join(f"`{code}`" for code in here)}
        for status, here in by_status.items()
    }


def of_any(rule: Rule, *, has_body: bool, always: bool) -> list[str]:
    """The codes that any operation may answer with: for its caller, its size, or the broker's state.

    `always`: it answers while the engine is not ready.
    """
    codes = ["header_too_large", "internal", "unauthorized", "forbidden"]
    if not rule.settles and not rule.probe:
        codes.append("throttled")
    if not always:
        codes += "not_ready", "shutting_down"
    if has_body:
        codes += "invalid_request", "request_timeout", "payload_too_large", "unsupported_media_type"
    return codes
