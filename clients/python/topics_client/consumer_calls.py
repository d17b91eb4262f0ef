"""The calls of consumers: requests, and parsers of the answers. No I/O.

Source: docs/reference/api.md#consumers.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import quote

from topics_client import answers
from topics_client.calls import at_partition, getting, sending, topic_path
from topics_client.consumer_values import (
    ConsumerChanges,
    ConsumerDeleted,
    ConsumerOptions,
    ConsumerPage,
    ConsumerPut,
    ConsumerRead,
    ConsumerReadOptions,
    ConsumerState,
)
from topics_client.errors import InvalidRequest
from topics_client.wire import Call, Replay, Request

#: The broker's limit for the wait of a read.
MAX_WAIT_MS = 30_000

_CONSUMER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:%-]{0,511}")


def put(topic: str, consumer: str, options: ConsumerOptions) -> Call[ConsumerPut]:
    request = sending("PUT", _path(topic, consumer, options.get("partition")), _given(options))
    return Call(request=request, parse=answers.json_value(ConsumerPut))


def change(topic: str, consumer: str, options: ConsumerChanges) -> Call[ConsumerPut]:
    request = sending("PATCH", _path(topic, consumer, options.get("partition")), _given(options))
    return Call(request=request, parse=answers.json_value(ConsumerPut))


def get(topic: str, consumer: str, partition: int | None = None) -> Call[ConsumerState]:
    return Call(request=getting(_path(topic, consumer, partition)), parse=answers.json_value(ConsumerState))


def page(
    topic: str, prefix: str, page_size: int, cursor: str | None, partition: int | None = None
) -> Call[ConsumerPage]:
    position = None if partition is None else str(int(partition))
    query = {"prefix": prefix or None, "page_size": str(page_size), "cursor": cursor, "partition": position}
    return Call(request=getting(topic_path(topic, "/consumers"), query), parse=answers.json_value(ConsumerPage))


def delete(topic: str, consumer: str, partition: int | None = None) -> Call[ConsumerDeleted]:
    # Not retried blindly: somebody may have created it again in between.
    request = Request(method="DELETE", target=_path(topic, consumer, partition), replay=Replay.IF_UNTOUCHED)
    return Call(request=request, parse=answers.json_value(ConsumerDeleted))


def read(topic: str, consumer: str, options: ConsumerReadOptions) -> Call[ConsumerRead]:
    """A read that moves the cursor carries a key, a random one unless given: a retry gets the lost answer."""
    fields = _given(options)
    if fields.get("checkpoint", True):
        fields.setdefault("attempt_key", uuid.uuid4().hex)
    wait_s = min(options.get("wait_ms") or 0, MAX_WAIT_MS) / 1000
    target = _path(topic, consumer, options.get("partition"), "/read")
    return Call(request=sending("POST", target, fields, wait_s=wait_s), parse=answers.consumer_read)


def commit(
    topic: str, consumer: str, seq: int, partition: int | None = None, epoch: int | None = None
) -> Call[ConsumerState]:
    request = sending("POST", _path(topic, consumer, partition, "/commit"), _given({"seq": seq, "epoch": epoch}))
    return Call(request=request, parse=answers.json_value(ConsumerState))


def seek(
    topic: str,
    consumer: str,
    *,
    seq: int | None,
    ts: int | None,
    to: Literal["earliest", "head"] | None,
    partition: int | None = None,
) -> Call[ConsumerState]:
    # Not retried blindly: others may have read on in between, and would get the same records again.
    fields = _given({"seq": seq, "ts": ts, "to": to})
    request = sending("POST", _path(topic, consumer, partition, "/seek"), fields, replay=Replay.IF_UNTOUCHED)
    return Call(request=request, parse=answers.json_value(ConsumerState))


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None and name != "partition"}


def _path(topic: str, consumer: str, partition: int | None, rest: str = "") -> str:
    if not _CONSUMER.fullmatch(consumer):
        raise InvalidRequest(
            f"{consumer!r} cannot be a consumer's name: 1 to 512 letters, digits, and . _ : - % "
            "(not first, but for _).",
            detail={"field": "consumer"},
        )
    return at_partition(topic_path(topic, f"/consumers/{quote(consumer, safe='')}{rest}"), partition)
