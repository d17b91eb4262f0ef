"""Kafka's group settings and their meaning here. Pure: the settings of a group are a map from names to texts.

Only share groups have settings; in a consumer group the members decide. Settings that here belong to a queue are
refused, and the message names the setting of the queue.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from broker.kafka.settings import InvalidConfig, Kind, Operation, parse_int
from broker.kafka.share import HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS
from storage import MAX_LEASE_MS, MIN_LEASE_MS, TopicConfig

AUTO_OFFSET_RESET: Final = "share.auto.offset.reset"
HEARTBEAT_INTERVAL: Final = "share.heartbeat.interval.ms"
ISOLATION_LEVEL: Final = "share.isolation.level"
LOCK_DURATION: Final = "share.record.lock.duration.ms"
SESSION_TIMEOUT: Final = "share.session.timeout.ms"

EARLIEST, LATEST, BY_DURATION = "earliest", "latest", "by_duration:"
MIN_HEARTBEAT_MS, MAX_HEARTBEAT_MS = 1_000, 60_000
MIN_SESSION_MS, MAX_SESSION_MS = 2_000, 1_800_000
#: A duration in the syntax of java.time.Duration, not negative.
_DURATION = re.compile(
    r"P(?=.)(?:(\d{1,6})D)?(?:T(?=.)(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,12})(?:\.(\d{1,9}))?S)?)?", re.IGNORECASE
)

#: The explicitly set settings of a group, by name.
GroupConfig = Mapping[str, str]


class GroupSetting(NamedTuple):
    """`read` checks a text and returns the one to store. Raises InvalidConfig."""

    name: str
    kind: Kind
    default: str
    about: str
    read: Callable[[str, str], str]


def _among(*values: str) -> Callable[[str, str], str]:
    def read(name: str, text: str) -> str:
        if text.lower() not in values:
            raise InvalidConfig(f"{name}: {text!r} is not one of {', '.join(values)}.")
        return text.lower()

    return read


def _between(low: int, high: int) -> Callable[[str, str], str]:
    return lambda name, text: str(parse_int(text, name, low, high))


def _reset(name: str, text: str) -> str:
    lowered = text.lower()
    if lowered not in (EARLIEST, LATEST) and (not lowered.startswith(BY_DURATION) or _duration_ms(lowered) is None):
        raise InvalidConfig(f"{name}: {text!r} is not one of {EARLIEST}, {LATEST}, {BY_DURATION}PnDTnHnMn.nS.")
    return lowered


def _duration_ms(text: str) -> int | None:
    found = _DURATION.fullmatch(text.removeprefix(BY_DURATION))
    if found is None:
        return None
    days, hours, minutes, seconds = (int(each or 0) for each in found.groups()[:4])
    fraction_ms = int((found[5] or "").ljust(3, "0")[:3])
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + fraction_ms


GROUP_SETTINGS: Final[dict[str, GroupSetting]] = {
    setting.name: setting
    for setting in (
        GroupSetting(
            AUTO_OFFSET_RESET, Kind.STRING, EARLIEST,
            "Where the group begins in a queue that it first uses; earlier jobs are deleted.",
            _reset,
        ),
        GroupSetting(
            HEARTBEAT_INTERVAL, Kind.INT, str(HEARTBEAT_INTERVAL_MS),
            "The heartbeat interval that the broker tells its members.",
            _between(MIN_HEARTBEAT_MS, MAX_HEARTBEAT_MS),
        ),
        GroupSetting(
            ISOLATION_LEVEL, Kind.STRING, "read_uncommitted", "Both values mean the same: there are no transactions.",
            _among("read_uncommitted", "read_committed"),
        ),
        GroupSetting(
            LOCK_DURATION, Kind.INT, str(TopicConfig().lease_ms),
            "How long a member holds a record. Unless set, the lease_ms of each queue applies; its default is shown.",
            _between(MIN_LEASE_MS, MAX_LEASE_MS),
        ),
        GroupSetting(
            SESSION_TIMEOUT, Kind.INT, str(SESSION_TIMEOUT_MS),
            "A member that sends no heartbeat for this long leaves the group.",
            _between(MIN_SESSION_MS, MAX_SESSION_MS),
        ),
    )
}  # fmt: skip

#: Kafka's settings that groups do not have here, and what applies instead.
_ELSEWHERE: Final = {
    "share.delivery.count.limit": "Set max_deliveries and dead_letter of each queue instead.",
    "share.partition.max.record.locks": "The number of leased jobs is not limited.",
    "share.renew.acknowledge.enable": "Records can always be renewed.",
}
_OF_OTHERS: Final = {
    "consumer.": "Members of consumer groups choose these themselves.",
    "streams.": "Streams groups are not supported.",
}


def lock_ms(config: GroupConfig) -> int | None:
    """The group's lock duration; None: the lease_ms of each queue applies."""
    return int(config[LOCK_DURATION]) if LOCK_DURATION in config else None


def heartbeat_ms(config: GroupConfig) -> int:
    return int(config.get(HEARTBEAT_INTERVAL, HEARTBEAT_INTERVAL_MS))


def session_ms(config: GroupConfig) -> int:
    return int(config.get(SESSION_TIMEOUT, SESSION_TIMEOUT_MS))


def begins_at(config: GroupConfig, now_ms: int) -> int | None:
    """The time of the first record that the group gets from a queue. None: all records; `now_ms`: none of the existing
    records."""
    reset = config.get(AUTO_OFFSET_RESET, EARLIEST)
    if reset == EARLIEST:
        return None
    return now_ms if reset == LATEST else max(0, now_ms - (_duration_ms(reset) or 0))


def replaced(values: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """Apply AlterConfigs: settings that are left out return to their defaults. Raises InvalidConfig."""
    found: dict[str, str] = {}
    for name, value in values:
        setting = _known(name)
        if value is not None:
            found[name] = setting.read(name, value)
    return _checked(found)


def altered(operations: Iterable[tuple[str, int, str | None]], config: GroupConfig) -> dict[str, str]:
    """Apply the operations of IncrementalAlterConfigs in order. Raises InvalidConfig."""
    found = dict(config)
    for name, operation, value in operations:
        setting = _known(name)
        if operation == Operation.DELETE:
            found.pop(name, None)
        elif operation != Operation.SET:
            raise InvalidConfig(f"{name} is not a list: it cannot be appended to or subtracted from.")
        elif value is None:
            raise InvalidConfig(f"{name}: the value is missing.")
        else:
            found[name] = setting.read(name, value)
    return _checked(found)


def _checked(config: dict[str, str]) -> dict[str, str]:
    if heartbeat_ms(config) >= session_ms(config):
        raise InvalidConfig(
            f"{SESSION_TIMEOUT} ({session_ms(config)}) must be greater than {HEARTBEAT_INTERVAL} "
            f"({heartbeat_ms(config)})."
        )
    return config


def _known(name: str) -> GroupSetting:
    setting = GROUP_SETTINGS.get(name)
    if setting is None:
        others = (about for prefix, about in _OF_OTHERS.items() if name.startswith(prefix))
        about = _ELSEWHERE.get(name) or next(others, "")
        raise InvalidConfig(f"Groups have no setting {name!r}. {about}".rstrip())
    return setting
