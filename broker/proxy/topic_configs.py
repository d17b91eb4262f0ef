"""Settings of topics by Kafka's names, and ours. Pure. Source: kafka.md §2 (DescribeConfigs)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from broker.proxy.errors import BadRequest
from storage.config import TopicConfig
from storage.options import Options

_UNLIMITED: Final = "-1"


class Entry(NamedTuple):
    """One setting. `read_only`: it cannot be changed here."""

    name: str
    value: str
    default: str
    read_only: bool = False


#: Those of ours: name → field; 0 of ours is -1 of Kafka's.
_FIELDS: Final = {"retention.ms": "ttl_ms", "retention.bytes": "cap_bytes"}
#: What always holds here, and may be said when a topic is made.
_FIXED: Final = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "message.timestamp.type": "CreateTime",
    "min.insync.replicas": "1",
}


def entries(config: TopicConfig) -> list[Entry]:
    """All there are, by name."""
    found = [Entry(name, value, value, read_only=True) for name, value in _FIXED.items()]
    found += [Entry(name, _shown(getattr(config, field)), _UNLIMITED) for name, field in _FIELDS.items()]
    most = str(Options().max_record_bytes)
    found.append(Entry("max.message.bytes", most, most, read_only=True))
    return sorted(found)


def as_strings(config: TopicConfig) -> dict[str, str]:
    return {each.name: each.value for each in entries(config)}


def _shown(value: int) -> str:
    return str(value) if value else _UNLIMITED


def changed(config: TopicConfig, wanted: Mapping[str, str | None]) -> TopicConfig:
    """`config` with other values; None: the default. Raises BadRequest naming what cannot be.

    Names that are Kafka's and mean nothing here are taken and left out, so that tools which always send them work.
    """
    fields: dict[str, int] = {}
    for name, value in wanted.items():
        field = _FIELDS.get(name)
        if field is not None:
            fields[field] = _number(name, _UNLIMITED if value is None else value)
        elif name in _FIXED and value not in (None, _FIXED[name]):
            raise BadRequest(f"Invalid value {value} for configuration {name}: it is {_FIXED[name]} here.")
        elif name not in _FIXED and name != "max.message.bytes" and not is_known(name):
            raise BadRequest(f"Unknown topic config name: {name}")
    return msgspec.structs.replace(config, **fields)


def is_known(name: str) -> bool:
    """Whether Kafka has a setting of topics with that name."""
    return name in _KAFKAS


def _number(name: str, value: str) -> int:
    try:
        number = int(value)
    except ValueError:
        number = -2
    if not -1 <= number < 1 << 63:
        raise BadRequest(f"Invalid value {value} for configuration {name}: not a number it can have.")
    return max(0, number)


_KAFKAS: Final = frozenset(
    [
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "follower.replication.throttled.replicas",
        "index.interval.bytes",
        "leader.replication.throttled.replicas",
        "max.compaction.lag.ms",
        "message.downconversion.enable",
        "message.format.version",
        "message.timestamp.difference.max.ms",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "preallocate",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
    ]
)
