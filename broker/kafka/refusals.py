"""Refusals of single entries of an admin request: a code, and a sentence if the protocol has a field for one."""

from __future__ import annotations

from broker.kafka.errors import ErrorCode, code_of, sentence_of
from broker.kafka.settings import InvalidConfig
from storage import InvalidRequest


class Refused(Exception):
    """What is wrong with one entry."""

    def __init__(self, code: ErrorCode, sentence: str | None = None) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence


def refusal(error: Exception) -> Refused:
    """The refusal of one entry for an error. Invalid settings of a topic are INVALID_CONFIG."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, InvalidConfig):
        return Refused(ErrorCode.INVALID_CONFIG, str(error))
    if isinstance(error, InvalidRequest):
        return Refused(ErrorCode.INVALID_CONFIG, error.message)
    return Refused(code_of(error), sentence_of(error))
