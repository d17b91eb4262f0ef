"""Kafka's settings of a group, and what they are here. Pure.

Nothing of them can be set otherwise: heartbeats and sessions of share groups are the broker's, the lock of a record is
the lease that its queue is set to, and a share group gets all that is in its queues. What says the same is taken.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from broker.kafka.settings import InvalidConfig, Kind, Operation
from broker.kafka.share.members import HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS
from storage.config import TopicConfig


class GroupSetting(NamedTuple):
    """`values`: the one that is so, and others that mean the same."""

    name: str
    kind: Kind
    values: tuple[str, ...]
    about: str


GROUP_SETTINGS: Final[dict[str, GroupSetting]] = {
    setting.name: setting
    for setting in (
        GroupSetting(
            "share.auto.offset.reset", Kind.STRING, ("earliest",), "A share group gets all that is in its queues."
        ),
        GroupSetting(
            "share.heartbeat.interval.ms", Kind.INT, (str(HEARTBEAT_INTERVAL_MS),), "What members are told to keep to."
        ),
        GroupSetting(
            "share.isolation.level", Kind.STRING, ("read_uncommitted", "read_committed"), "There are no transactions."
        ),
        GroupSetting(
            "share.record.lock.duration.ms", Kind.INT, (str(TopicConfig().lease_ms),),
            "The lease_ms of each queue; this is its default.",
        ),
        GroupSetting(
            "share.session.timeout.ms", Kind.INT, (str(SESSION_TIMEOUT_MS),), "Who is silent for longer is gone."
        ),
    )
}  # fmt: skip


def check_same(operations: Iterable[tuple[str, int, str | None]]) -> None:
    """Raises InvalidConfig for a change that would be one."""
    for name, operation, value in operations:
        setting = GROUP_SETTINGS.get(name)
        if setting is None:
            raise InvalidConfig(f"There is no group setting {name!r}.")
        if operation == Operation.DELETE:
            continue
        if operation != Operation.SET:
            raise InvalidConfig(f"{name} is no list to add to or take from.")
        if value is None or value.lower() not in setting.values:
            raise InvalidConfig(f"{name} is {setting.values[0]} here, and cannot be {value!r}. {setting.about}")
