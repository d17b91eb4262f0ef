"""The form of all errors under /v0.

Source: docs/reference/errors.md.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field, WithJsonSchema

from schemas.fields import AnswerModel

#: The `format` of strings that are error codes. The codes are declared with their statuses in `broker.content`. The
#: OpenAPI document has one schema that lists them, and replaces strings of this format by references to it.
ERROR_CODE_FORMAT: Final = "error-code"
ErrorCode = Annotated[str, WithJsonSchema({"type": "string", "format": ERROR_CODE_FORMAT})]


class ErrorBody(AnswerModel):
    code: ErrorCode = Field(description="The kind of error, for programs.", examples=["topic_not_found"])
    message: str = Field(description="What went wrong, for people.", examples=["There is no topic named 'orders'."])
    detail: dict[str, Any] | None = Field(None, description="Names and numbers; which ones depends on the code.")


class ErrorAnswer(AnswerModel):
    """An error."""

    error: ErrorBody
