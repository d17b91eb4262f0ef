"""Consumers of a partition and their cursors, as recorded in the log. Pure."""

from storage.state.consumers import section
from storage.state.consumers.answers import has_one, remembered, resume
from storage.state.consumers.attempts import ANSWER_TTL_MS, AnswerRange, Attempts
from storage.state.consumers.consumer import Awaited, Consumer
from storage.state.consumers.section import ConsumerSection
from storage.state.consumers.table import ConsumerTable
from storage.state.consumers.values import Consistency, ConsumerConfig, ConsumerRead, ConsumerState, Start

__all__ = [
    "ANSWER_TTL_MS",
    "AnswerRange",
    "Attempts",
    "Awaited",
    "Consistency",
    "Consumer",
    "ConsumerConfig",
    "ConsumerRead",
    "ConsumerSection",
    "ConsumerState",
    "ConsumerTable",
    "Start",
    "has_one",
    "remembered",
    "resume",
    "section",
]
