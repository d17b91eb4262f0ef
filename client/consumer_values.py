"""Consumers, as they are told to the broker and as it tells of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

import msgspec

from client.values import Diff


class ConsumerOptions(TypedDict, total=False):
    """What a consumer can be told; left out = the default, also of one that exists.

    `consistency`: "at_least_once" or "strictly_at_once". `start` of a new one: "earliest", "head", or a seq to begin
    behind.
    """

    consistency: str
    persist_every: int
    start: Literal["earliest", "head"] | int
    partition: int | None


class ConsumerChanges(TypedDict, total=False):
    """What of a consumer can be changed; left out = as it is."""

    consistency: str
    persist_every: int
    partition: int | None


class ConsumerReadOptions(TypedDict, total=False):
    """What a consumer's read can be told; left out = the broker's default."""

    limit: int
    max_batch_bytes: int
    checkpoint: bool
    wait_ms: int
    node: str | Sequence[str] | None
    attempt_key: str | None
    include_tags: bool
    include_meta: bool
    include_data: bool
    skip_corrupt: bool
    partition: int | None


class Consumer(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer as it is now. `cursor_seq`: handed out or committed last; `durable_seq`: what a crash of the broker
    sets it back to; `unread`: live records behind the cursor; `lag`: seqs behind it."""

    topic: str
    consumer: str
    consistency: str = "at_least_once"
    persist_every: int = 1000
    cursor_seq: int = 0
    durable_seq: int = 0
    unread: int = 0
    lag: int = 0


class ConsumerPut(Consumer, frozen=True, kw_only=True):
    """The outcome of `consumers.put`."""

    created: bool


class ConsumerPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a list of consumers; `next_cursor` is there when more follow."""

    consumers: list[Consumer]
    next_cursor: str | None = None


class ConsumerDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of `consumers.delete`; `deleted` is False when there was none."""

    topic: str
    consumer: str
    deleted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerRead(Diff):
    """One answer of `consumers.read`. The next one goes on behind `cursor_seq`, and `unread` live records are there.

    `repeated`: this answer was given to the same attempt_key before.
    """

    consumer: str
    cursor_seq: int
    unread: int
    repeated: bool = False
