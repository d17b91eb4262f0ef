"""A topic was deleted and created again while the cold store still had a partition of the old topic. If neither had
partition 0 there, nothing told the two apart, and readers of the tier got records of the deleted topic."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pipeline.cold import ColdOrigin


def put(cold: Path, topic_id: int, partition: int, epoch: int, **more: Any) -> None:
    folder = cold / "cluster" / "topics" / f"{topic_id:016x}"
    folder.mkdir(parents=True)
    fields = {
        "cluster_id": "cluster", "name": "t", "partition": partition, "partitions": 3, "epoch": epoch, "floors": {},
        "loss": [], "segments": [], "end_seq": 1, **more,
    }  # fmt: skip
    (folder / "topic.json").write_bytes(msgspec.json.encode(fields))


def epochs(cold: Path) -> dict[int, int]:
    with closing(ColdOrigin(str(cold / "cluster"))) as origin:
        return {number: view.epoch for number in range(3) if (view := origin.view("t", number)).epoch}


def test_only_partitions_of_the_newest_topic_are_read(tmp_path: Path) -> None:
    put(tmp_path, 6, 1, 6, topic=5)
    put(tmp_path, 12, 2, 12, topic=10)
    assert epochs(tmp_path) == {2: 12}


def test_the_newest_topic_is_identified_by_partition_0(tmp_path: Path) -> None:
    # Partition 1 of the first topic was created later than its other partitions.
    put(tmp_path, 5, 0, 5, topic=5)
    put(tmp_path, 7, 1, 7, topic=5)
    put(tmp_path, 10, 0, 10, topic=10)
    assert epochs(tmp_path) == {0: 10}


@pytest.mark.parametrize(("topic_id", "found"), [(6, {2: 12}), (11, {1: 11, 2: 12})])
def test_files_without_a_topic_are_matched_by_id(tmp_path: Path, topic_id: int, found: dict[int, int]) -> None:
    put(tmp_path, topic_id, 1, topic_id)
    put(tmp_path, 12, 2, 12, topic=10)
    assert epochs(tmp_path) == found
