"""Whether the logs of topics with several partitions fit together. From the specification alone.

Partition 0's frame is synced after the frames that make the other partitions, and before those that delete them. So
whenever the directory is read, all partitions that partition 0 counts exist. Others may exist, and belong to nobody.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.support.spec_frames import SpecViolation
from tests.support.spec_replay import Log


def judge_partitions(logs: Mapping[int, Log]) -> None:
    """`logs`: all live ones. Raises SpecViolation."""
    for log in logs.values():
        if (log.partition == 0) != (log.topic == log.topic_id):
            raise _wrong(log, f"partition {log.partition} has topic {log.topic}, which is partition 0's topic_id")
        if not log.partition < log.partitions:
            raise _wrong(log, f"it is one of {log.partitions}")
    for root in (log for log in logs.values() if log.partition == 0):
        there = {log.partition: log for log in logs.values() if log.topic == root.topic_id}
        missing = [partition for partition in range(root.partitions) if partition not in there]
        if missing:
            raise _wrong(root, f"it counts {root.partitions} partitions, and {missing} are not there")
        if names := {log.name for log in there.values()} - {root.name}:
            raise _wrong(root, f"its partitions have other names: {names}")


def unfinished(logs: Mapping[int, Log]) -> list[str]:
    """What a start has to complete: logs that no topic counts, and settings that differ from those of partition 0."""
    found: list[str] = []
    for log in logs.values():
        root = logs.get(log.topic)
        if root is None or log.partition >= root.partitions:
            found.append(f"log {log.topic_id} (partition {log.partition} of {log.name}) is counted by no topic")
        elif log.config != root.config or log.partitions != root.partitions:
            found.append(f"log {log.topic_id} (partition {log.partition} of {log.name}) is not set as partition 0 is")
    return found


def _wrong(log: Log, what: str) -> SpecViolation:
    return SpecViolation("wal", 0, f"log {log.topic_id} (partition {log.partition} of {log.name}): {what}")
