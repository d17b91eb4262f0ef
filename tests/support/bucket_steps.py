"""Carries out steps of `storage.bucket` one request after the other, with a store that a test writes by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from storage.bucket.requests import Request, Steps


def carry_out(steps: Steps[Any], answer: Callable[[Request], Any]) -> Any:
    """What the steps return, when each request has the answer that this function gives."""
    given: Any = None
    try:
        while True:
            given = answer(steps.send(given))
    except StopIteration as end:
        return end.value
