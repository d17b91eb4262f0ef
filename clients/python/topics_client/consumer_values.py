"""Consumers: their options, and their state in answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

import msgspec

from topics_client.values import Diff


class ConsumerOptions(TypedDict, total=False):
    """Options of a consumer; omitted = the default, also for an existing one.

    `consistency`: "at_least_once" or "strictly_at_once". `start` of a new one: "earliest", "head", or a seq to start
    after.
    """

    consistency: str
    persist_every: int
    start: Literal["earliest", "head"] | int
    partition: int | None


class ConsumerChanges(TypedDict, total=False):
    """The options of a consumer that can be changed; omitted = unchanged."""

    consistency: str
    persist_every: int
    partition: int | None


class ConsumerReadOptions(TypedDict, total=False):
    """Options of a consumer's read; omitted = the broker's default."""

    limit: int
    max_batch_bytes: int
    checkpoint: bool
    wait_ms: int | None
    node: str | Sequence[str] | None
    attempt_key: str | None
    include_tags: bool
    include_meta: bool
    include_data: bool
    skip_corrupt: bool
    partition: int | None


class ConsumerState(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer as it is now. `cursor_seq`: the last record returned or committed; `durable_seq`: a crash of the
    broker resets the cursor to it; `unread`: live records after the cursor; `lag`: seqs after it."""

    topic: str
    consumer: str
    consistency: str = "at_least_once"
    persist_every: int = 1000
    cursor_seq: int = 0
    durable_seq: int = 0
    unread: int = 0
    lag: int = 0


class ConsumerPut(ConsumerState, frozen=True, kw_only=True):
    """The outcome of `consumers.put`."""

    created: bool


class ConsumerPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a list of consumers; `next_cursor` is set when more follow."""

    consumers: list[ConsumerState]
    next_cursor: str | None = None


class ConsumerDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of `consumers.delete`; `deleted` is False when it did not exist."""

    topic: str
    consumer: str
    deleted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerRead(Diff):
    """One answer of `consumers.read`. The next one continues after `cursor_seq`, with `unread` live records to come.

    `repeated`: the same attempt_key got this answer before.
    """

    consumer: str
    cursor_seq: int
    unread: int
    repeated: bool = False
