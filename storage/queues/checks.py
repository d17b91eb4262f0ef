"""Checks of queue operations' arguments, for the library and the broker.

All except `check_seqs` raise InvalidRequest, which names the field.

Source: docs/reference/api.md#queues.
"""

from __future__ import annotations

from collections.abc import Sequence

from storage.config import MAX_LEASE_MS, MIN_LEASE_MS
from storage.errors import BatchTooLarge, InvalidRequest, NotAQueue
from storage.log.validation import MAX_DELAY_MS, MAX_U64, check_text
from storage.options import Options
from storage.state.catalog import Topic
from storage.state.queues.leases import LeaseTable

#: Most jobs in one claim, ack, nack or extend.
MAX_JOBS = 1000
MAX_WAIT_MS = 30_000
MAX_ATTEMPT_KEY_BYTES = 128
MAX_REASON_BYTES = 1024


def check_node(node: str, options: Options) -> None:
    if not node:
        raise InvalidRequest("node: required, and not empty.", field="node")
    check_text(node, "node", options.max_node_bytes)


def check_attempt_key(key: str | None) -> None:
    if key is not None:
        check_text(key, "attempt_key", MAX_ATTEMPT_KEY_BYTES)


def check_reason(reason: str | None) -> None:
    if reason and len(check_text(reason, "reason", MAX_U64)) > MAX_REASON_BYTES:
        raise InvalidRequest(f"reason: at most {MAX_REASON_BYTES} bytes.", field="reason")


def check_delay(delay_ms: int | None) -> None:
    if delay_ms is not None and not 0 <= delay_ms <= MAX_DELAY_MS:
        raise InvalidRequest(f"delay_ms: at most 366 days ({MAX_DELAY_MS} ms).", field="delay_ms")


def lease_time(lease_ms: int | None, usual: int) -> int:
    """The duration of a lease, clamped like a topic's setting."""
    if lease_ms is None:
        return usual
    if lease_ms < 0:
        raise InvalidRequest("lease_ms must not be negative.", field="lease_ms")
    return max(MIN_LEASE_MS, min(MAX_LEASE_MS, lease_ms))


def check_seqs(seqs: Sequence[int], lease_ids: Sequence[int | None] | None) -> None:
    """Raises BatchTooLarge, InvalidRequest."""
    if len(seqs) > MAX_JOBS:
        raise BatchTooLarge(f"seqs: at most {MAX_JOBS}, these are {len(seqs)}.", field="seqs", max=MAX_JOBS)
    if lease_ids and len(lease_ids) != len(seqs):
        raise InvalidRequest(
            f"lease_ids: one for each of the {len(seqs)} seqs, or none at all; these are {len(lease_ids)}.",
            field="lease_ids",
        )
    if seqs and (min(seqs) < 0 or max(seqs) > MAX_U64):
        raise InvalidRequest("seqs must be seqs, 0 to 2^64 - 1.", field="seqs")


def tokens_of(seqs: Sequence[int], lease_ids: Sequence[int | None] | None) -> dict[int, int]:
    """Token (0: none given) by seq; a seq named twice counts once. For arguments that have passed `check_seqs`."""
    if not lease_ids:
        return dict.fromkeys(seqs, 0)
    return {seq: token or 0 for seq, token in zip(seqs, lease_ids, strict=True)}


def table_of(topic: Topic) -> LeaseTable:
    """Raises NotAQueue."""
    if topic.log.queue is None:
        raise NotAQueue(f"{topic.name} is a log, not a queue.", topic=topic.name)
    return topic.log.queue
