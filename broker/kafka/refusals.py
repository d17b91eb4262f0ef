"""Errors of single entries of an admin request: a code, and a message if the protocol has a field for it."""

from __future__ import annotations

from broker.kafka.errors import ErrorCode, code_of, message_of
from broker.kafka.settings import InvalidConfig
from storage import InvalidRequest


class Refused(Exception):
    """One entry of the request is refused."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def refusal(error: Exception) -> Refused:
    """Turn an error into the refusal of an entry. Invalid settings of a topic become INVALID_CONFIG."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, InvalidConfig):
        return Refused(ErrorCode.INVALID_CONFIG, str(error))
    if isinstance(error, InvalidRequest):
        return Refused(ErrorCode.INVALID_CONFIG, error.message)
    return Refused(code_of(error), message_of(error))
