"""The envelope of every refusal under /v0.

Source: docs/reference/errors.md.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field, WithJsonSchema

from schemas.fields import AnswerModel

#: The `format` of a string that is an error code. The codes are declared beside their statuses, above this package: the
#: OpenAPI document lists them in a schema of its own, to which it turns what has this format into a reference.
ERROR_CODE_FORMAT: Final = "error-code"
ErrorCode = Annotated[str, WithJsonSchema({"type": "string", "format": ERROR_CODE_FORMAT})]


class ErrorBody(AnswerModel):
    code: ErrorCode = Field(description="What went wrong, for programs.", examples=["topic_not_found"])
    message: str = Field(description="What went wrong, for people.", examples=["There is no topic named 'orders'."])
    detail: dict[str, Any] | None = Field(None, description="Names and numbers that belong to the code.")


class ErrorAnswer(AnswerModel):
    """What every refusal looks like."""

    error: ErrorBody
