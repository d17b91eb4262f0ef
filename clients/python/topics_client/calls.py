"""The calls of the API: requests, and parsers of the answers. No I/O.

Source: docs/reference/api.md#conventions, docs/reference/api.md#topics, docs/reference/api.md#records,
docs/reference/api.md#operations.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict
from urllib.parse import quote, urlencode

import msgspec

from topics_client import answers
from topics_client.encoding import encode_records
from topics_client.errors import InvalidRequest
from topics_client.values import (
    Appended,
    Cluster,
    Diff,
    Health,
    Ready,
    Record,
    RecordsDeleted,
    TopicDeleted,
    TopicPage,
    TopicPut,
    TopicSettings,
    TopicState,
    one_line,
)
from topics_client.wire import Call, Replay, Request

_TOPIC = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,254}")
_JSON = {"Content-Type": "application/json"}

#: A tag to look for, or a predicate such as ["tag", "Glob", "order.*"].
Match = str | Sequence[str]


class AppendOptions(TypedDict, total=False):
    """Options of `append`; omitted = the broker's default."""

    node: str | None
    idempotency_key: str | None
    idempotency_strict: bool
    create: bool
    config: TopicSettings | None
    expected_seq: int | None
    disable_backpressure: bool
    #: Omitted: the broker chooses, by key, expected_seq, tags, or round-robin.
    partition: int | None


class ReadOptions(TypedDict, total=False):
    """Options of `read`; omitted = the broker's default."""

    limit: int
    max_batch_bytes: int
    node: str | Sequence[str] | None
    include_tags: bool
    include_meta: bool
    include_data: bool
    wait_ms: int
    from_ts: int | None
    tag: Match | None
    epoch: int | None
    skip_corrupt: bool
    include_stored: bool
    partition: int | None


def health() -> Call[Health]:
    return Call(request=getting("/v0/health"), parse=answers.json_value(Health))


def cluster() -> Call[Cluster]:
    return Call(request=getting("/v0/cluster"), parse=answers.json_value(Cluster))


def ready(replay: Replay = Replay.NEVER) -> Call[Ready]:
    return Call(request=getting("/v0/ready", replay=replay), parse=answers.json_value(Ready))


def metrics() -> Call[str]:
    return Call(request=getting("/v0/metrics", headers={"Accept": "text/plain"}), parse=answers.text)


def put_topic(topic: str, settings: Mapping[str, Any]) -> Call[TopicPut]:
    return Call(request=sending("PUT", topic_path(topic), settings), parse=answers.json_value(TopicPut))


def change_topic(topic: str, settings: Mapping[str, Any]) -> Call[TopicPut]:
    return Call(request=sending("PATCH", topic_path(topic), settings), parse=answers.json_value(TopicPut))


def state(topic: str, *, touch: bool = True, complete: bool = True) -> Call[TopicState]:
    """`complete`: refused with NotReady while a cell that has a partition is away."""
    query = {"touch": None if touch else "false", "complete": "true" if complete else None}
    return Call(request=getting(topic_path(topic), query), parse=answers.json_value(TopicState))


def topics_page(prefix: str, page_size: int, cursor: str | None) -> Call[TopicPage]:
    query = {"prefix": prefix or None, "page_size": str(page_size), "cursor": cursor}
    return Call(request=getting("/v0/topics", query), parse=answers.json_value(TopicPage))


def delete_topic(topic: str, *, if_empty: bool = False) -> Call[TopicDeleted]:
    # Not retried blindly: a producer may have created the topic again in between.
    target = topic_path(topic) + ("?if_empty=true" if if_empty else "")
    request = Request(method="DELETE", target=target, replay=Replay.IF_UNTOUCHED)
    return Call(request=request, parse=answers.json_value(TopicDeleted))


def append(topic: str, records: Iterable[Any], options: AppendOptions) -> Call[Appended]:
    """Every append carries a key, a random one unless given: this makes a retry safe."""
    fields = {name: value for name, value in options.items() if name != "partition"}
    if fields.get("idempotency_key") is None:
        fields["idempotency_key"] = uuid.uuid4().hex
    return append_encoded(topic, append_body(encode_records(records), fields), options.get("partition"))


def append_body(records: list[bytes], fields: Mapping[str, Any]) -> bytes:
    """The JSON text of an append. `records`: as `encoding.encode_record` makes them; the list is changed. `fields`: the
    others, with the idempotency key; those that are None are left out."""
    given = {name: value for name, value in fields.items() if value is not None}
    try:
        rest = msgspec.json.encode(given)
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"The options of the append cannot be written as JSON: {error}.") from error
    # The texts are copied once: a new block of that size costs more than what is copied into it.
    begin, end = b'{"records":[', b"],%b" % rest[1:]
    if not records:
        return begin + end
    records[0] = begin + records[0]
    records[-1] += end
    return b",".join(records)


def append_encoded(topic: str, body: bytes, partition: int | None) -> Call[Appended]:
    """An append with a body of `append_body`."""
    target = at_partition(topic_path(topic) + "?return_seqs=false", partition)
    request = Request(method="POST", target=target, body=body, headers=_JSON)
    return Call(request=request, parse=answers.json_value(Appended))


def read(topic: str, from_seq: int, options: ReadOptions) -> Call[Diff]:
    given = {name: value for name, value in options.items() if value is not None and name != "partition"}
    target = at_partition(topic_path(topic, "/diff"), options.get("partition"))
    wait_s = options.get("wait_ms", 0) / 1000
    return Call(request=sending("POST", target, {"from_seq": from_seq, **given}, wait_s=wait_s), parse=answers.diff)


def get_record(topic: str, seq: int, *, partition: int | None = None) -> Call[Record]:
    query = {"include_tags": "true", "partition": None if not partition else str(int(partition))}
    return Call(request=getting(topic_path(topic, f"/records/{int(seq)}"), query), parse=answers.record)


def delete_records(
    topic: str, *, before_seq: int | None, match: Match | None, partition: int | None = None
) -> Call[RecordsDeleted]:
    # Not retried blindly: it is bounded by the head at the call, and a later call has a later head.
    fields = {"before_seq": before_seq, "match": match}
    body = {name: value for name, value in fields.items() if value is not None}
    target = at_partition(topic_path(topic, "/delete"), partition)
    request = sending("POST", target, body, replay=Replay.IF_UNTOUCHED)
    return Call(request=request, parse=answers.json_value(RecordsDeleted))


def verbatim(call: Call[Any]) -> Call[bytes]:
    """The same call, whose value is the broker's answer unchanged, on one line."""
    return Call(request=call.request, parse=lambda reply: one_line(reply.body))


def topic_path(topic: str, rest: str = "") -> str:
    """The path of a topic, or of a resource below it. Raises InvalidRequest for an invalid topic name."""
    if not _TOPIC.fullmatch(topic):
        raise InvalidRequest(
            f"{topic!r} cannot be a topic's name: 1 to 255 letters, digits, and . _ : - (not first, but for _).",
            detail={"field": "topic"},
        )
    return f"/v0/topics/{quote(topic, safe='')}{rest}"


def at_partition(target: str, partition: int | None) -> str:
    """The target, for a partition of its topic; None: the broker's choice, which is 0 except for appends."""
    return target if partition is None else f"{target}{'&' if '?' in target else '?'}partition={int(partition)}"


def getting(
    path: str,
    query: Mapping[str, str | None] | None = None,
    *,
    headers: Mapping[str, str] | None = None,
    replay: Replay = Replay.SAFE,
) -> Request:
    """A GET; None values of the query are omitted."""
    given = {name: value for name, value in (query or {}).items() if value is not None}
    target = f"{path}?{urlencode(given)}" if given else path
    return Request(method="GET", target=target, headers=headers or {}, replay=replay)


def sending(
    method: str, target: str, fields: Mapping[str, Any], *, wait_s: float = 0.0, replay: Replay = Replay.SAFE
) -> Request:
    """A request whose body is a JSON object."""
    try:
        body = msgspec.json.encode(fields)
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"The request cannot be written as JSON: {error}.") from error
    return Request(method=method, target=target, body=body, headers=_JSON, wait_s=wait_s, replay=replay)
