"""Consumers in the snapshot section of their log: capture and restore. Pure.

Source: docs/reference/format.md#snapshots, docs/reference/format.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from storage.state.consumers.consumer import Consumer
from storage.state.consumers.table import ConsumerTable
from storage.state.consumers.values import ConsumerConfig


class ConsumerSection(msgspec.Struct, frozen=True, kw_only=True):
    """One consumer: everything that frames of its log say about it."""

    consumer_id: int
    name: str
    config: dict[str, Any]
    cursor: int


def capture(table: ConsumerTable) -> list[ConsumerSection]:
    """The consumers, ordered by id."""
    return [
        ConsumerSection(
            consumer_id=each.consumer_id, name=each.name, config=each.config.to_map(), cursor=each.durable_seq
        )
        for each in sorted(table.by_name.values(), key=lambda consumer: consumer.consumer_id)
    ]


def restore(table: ConsumerTable, sections: Iterable[ConsumerSection]) -> None:
    for each in sections:
        config = ConsumerConfig.from_map(each.config)
        table.add(Consumer(each.consumer_id, each.name, config, each.cursor))
