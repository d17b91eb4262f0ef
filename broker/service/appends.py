"""Writing records.

Source: docs/reference/api.md#records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from broker.service.predicates import check_topic_name
from broker.service.topics import storage_config
from schemas import TopicSettings
from storage.records import Appended, NewRecord, PlainRecords
from storage.topics import partitioner

if TYPE_CHECKING:
    from broker.pressure import Pressure
    from storage import Engine


class Append(msgspec.Struct, kw_only=True):
    """One write, and its options."""

    topic: str
    records: Sequence[NewRecord] | PlainRecords
    node: str | None = None
    idempotency_key: str | None = None
    idempotency_strict: bool = False
    create: bool = True
    settings: TopicSettings | None = None
    expected_seq: int | None = None
    disable_backpressure: bool = False
    partition: int | None = None


def names_of(write: Append) -> list[str]:
    """The topics that the write names. Raises InvalidRequest for an invalid name."""
    check_topic_name(write.topic)
    if write.settings is None:
        return [write.topic]
    config = storage_config(write.topic, write.settings, "config.")
    return [write.topic] if config.dead_letter is None else [write.topic, config.dead_letter]


async def append(engine: Engine, write: Append, pressure: Pressure) -> Appended:
    """Append the records. On return they are as durable as the topic's class defines.

    Raises the engine's errors, and UnderPressure.
    """
    check_topic_name(write.topic)
    if not write.disable_backpressure:
        pressure.check()
    config = None if write.settings is None else storage_config(write.topic, write.settings, "config.")
    if partitioner.needs_choice(engine, write.topic, write.partition, config):
        return await partitioner.append(
            engine,
            write.topic,
            write.records,
            partition=write.partition,
            node=write.node,
            idempotency_key=write.idempotency_key,
            idempotency_strict=write.idempotency_strict,
            create=write.create,
            config=config,
            expected_seq=write.expected_seq,
        )
    return await engine.append(
        write.topic,
        write.records,
        node=write.node,
        idempotency_key=write.idempotency_key,
        idempotency_strict=write.idempotency_strict,
        create=write.create,
        config=config,
        expected_seq=write.expected_seq,
    )
