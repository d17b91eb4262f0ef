"""Whether there is room for a write: the topic's caps and the engine's limits.

Asked in the same step of the loop that assigns the seqs, of the assigned view, so that the answer is exact.

Source: docs/reference/api.md#topics, docs/reference/api.md#operations.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from storage.config import Discard, Durability, TopicConfig
from storage.errors import LimitReached, RecordTooLarge, StorageFull, TopicFull
from storage.format import control
from storage.format.blocks import largest
from storage.log.encode import encode_controls
from storage.records.values import LossCause
from storage.state.consumers.consumed_floor import consumed_floor
from storage.state.log import Log
from storage.state.retained import Eviction

if TYPE_CHECKING:
    from storage.engine import Engine


def check_caps(config: TopicConfig, log: Log | None, payloads: array[int], total_bytes: int) -> None:
    """Raises RecordTooLarge for what can never fit, TopicFull (discard "reject") for what does not fit now."""
    count, cap_records, cap_bytes = len(payloads), config.cap_records, config.cap_bytes
    if not cap_records and not cap_bytes and not config.consumed_max_bytes:
        return
    if (most := config.most_bytes) and (longest := largest(payloads)) > most:
        raise _never_fits(longest, "cap_bytes" if most == cap_bytes else "consumed_max_bytes", most)
    if config.discard is not Discard.REJECT:
        return
    if cap_bytes and total_bytes > cap_bytes:
        raise _never_fits(total_bytes, "cap_bytes", cap_bytes)
    if cap_records and count > cap_records:
        raise RecordTooLarge(
            f"{count} records can never fit under cap_records {cap_records}.", field="records", max=cap_records
        )
    held, size = (log.assigned_count, log.assigned_bytes) if log else (0, 0)
    if (cap_records and held + count > cap_records) or (cap_bytes and size + total_bytes > cap_bytes):
        raise TopicFull(count=held, bytes=size, cap_records=cap_records, cap_bytes=cap_bytes)


def _never_fits(size_bytes: int, bound: str, max_bytes: int) -> RecordTooLarge:
    what = f"{size_bytes} bytes can never fit under {bound} {max_bytes}."
    return RecordTooLarge(what, field="records", max=max_bytes)


def over_caps(config: TopicConfig, log: Log, records: int, size_bytes: int) -> tuple[int, int] | None:
    """(records, bytes) by which the log would be over its caps with so much more in it; None = it would not be.

    What may wait for consumers is a cap like the others, but for `discard: reject`: the oldest go.
    """
    most_bytes = config.most_bytes
    over_records = log.assigned_count + records - config.cap_records if config.cap_records else 0
    over_bytes = log.assigned_bytes + size_bytes - most_bytes if most_bytes else 0
    if over_records <= 0 and over_bytes <= 0:
        return None
    return max(0, over_records), max(0, over_bytes)


def eviction(config: TopicConfig, log: Log, plan: Eviction) -> control.EvictWatermark:
    """The frame that says that the oldest make room, as things are assigned now.

    What all consumers have passed is not lost to a cap: it goes as consumed.
    """
    cause = LossCause.CONSUMED if plan.floor <= consumed_floor(config, log) else LossCause.CAP
    return control.EvictWatermark(floors={cause: plan.floor}, jobs=None if log.queue is None else plan.records)


def check_limits(engine: Engine, config: TopicConfig, total_bytes: int, *, has_key: bool) -> None:
    """Raises LimitReached or StorageFull when the engine holds as much as it may."""
    usage, options = engine.catalog.usage, engine.options
    if has_key and _keys_taken(engine) >= options.max_idempotency_keys:
        raise LimitReached(
            "Too many idempotency keys are live.", limit="max_idempotency_keys", max=options.max_idempotency_keys
        )
    if options.max_total_bytes and usage.bytes + total_bytes > options.max_total_bytes:
        raise LimitReached("The broker holds as much as it may.", limit="max_total_bytes", max=options.max_total_bytes)
    ephemeral = config.durability is Durability.EPHEMERAL
    if ephemeral and usage.ephemeral_bytes + total_bytes > options.ephemeral_max_bytes:
        raise StorageFull(
            "The memory for ephemeral topics is full.", limit="ephemeral_max_bytes", max=options.ephemeral_max_bytes
        )


def _keys_taken(engine: Engine) -> int:
    """Keys that are held, and those on their way that are not held yet."""
    held, pending = engine.catalog.usage.keys, engine.pending_keys
    if held + len(pending) < engine.options.max_idempotency_keys:
        return held
    return held + sum(not done.done() for done in pending.values())


def announce(engine: Engine, log: Log, evictions: Sequence[control.EvictWatermark]) -> None:
    """Records from before the topic was ephemeral are evicted: they must not come back with a restart."""
    again = [msgspec.structs.replace(each, jobs=None) for each in evictions]  # they are counted by now
    controls = encode_controls(again, log.topic_id, engine.now_ms(), durable=False)
    done = engine.submit_controls(log, controls, frees=True, needs_sync=False)
    done.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody waits for it
