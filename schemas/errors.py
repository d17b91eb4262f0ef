"""The envelope of every refusal under /v0.

Source: docs/reference/errors.md.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from schemas.fields import AnswerModel


class ErrorBody(AnswerModel):
    code: str = Field(description="What went wrong, for programs.", examples=["topic_not_found"])
    message: str = Field(description="What went wrong, for people.", examples=["There is no topic named 'orders'."])
    detail: dict[str, Any] | None = Field(None, description="Names and numbers that belong to the code.")


class ErrorAnswer(AnswerModel):
    """What every refusal looks like."""

    error: ErrorBody
