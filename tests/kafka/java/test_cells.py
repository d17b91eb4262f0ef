"""Kafka's command line tools with a set of cells: they do not notice which cell has what."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.kafka.cells.several import CELLS, name_of
from tests.kafka.cells.test_clients import KafkaCells
from tests.kafka.java.programs import NEWEST, Programs
from tests.kafka.java.test_tools import GROUPS, SHARES, consume, produce, rows

TOPICS = [name_of(cell, "t") for cell in range(CELLS)]
QUEUES = [name_of(cell, "jobs") for cell in range(CELLS)]


@pytest.fixture
def programs(version: str, tmp_path: Path) -> Iterator[Programs]:
    with KafkaCells(tmp_path) as cells:
        cells.start()
        folder = tmp_path / "programs"
        folder.mkdir()
        yield Programs(version, cells.address, folder)


def test_topics_and_groups_of_all_cells_are_handled_at_any_node(programs: Programs) -> None:
    group = ("--group", "readers")
    for topic in TOPICS:
        programs.tool("TopicCommand", "--create", "--topic", topic, "--partitions", "1")
        programs.tool("TopicCommand", "--alter", "--topic", topic, "--partitions", "2")
        produce(programs, topic, 300, acks="all")
        assert consume(programs, topic, 300, "readers") == 300
    assert programs.tool("TopicCommand", "--list").split() == sorted(TOPICS)
    told = programs.tool("TopicCommand", "--describe")
    assert [told.count(f"Leader: {node}\t") for node in (1, 2, 3)] == [2, 2, 2]
    assert programs.tool(GROUPS, "--list").split() == ["readers"]
    ends = {(row[1], row[2]): row[3:6] for row in rows(programs.tool(GROUPS, "--describe", *group))}
    assert {topic for topic, _ in ends} == {*TOPICS}
    assert sum(int(at) for at, _, _ in ends.values()) == 300 * CELLS
    assert {lag for _, _, lag in ends.values()} == {"0"}
    programs.tool(GROUPS, "--reset-offsets", *group, "--all-topics", "--to-earliest", "--execute")
    ends = {(row[1], row[2]): row[3:6] for row in rows(programs.tool(GROUPS, "--describe", *group))}
    assert {at for at, _, _ in ends.values()} == {"0"}
    assert "Successful" in programs.tool(GROUPS, "--delete-offsets", *group, "--topic", TOPICS[2])
    assert "successful" in programs.tool(GROUPS, "--delete", *group)
    assert programs.tool(GROUPS, "--list").split() == []
    for topic in TOPICS:
        programs.configs(
            "--alter", "--entity-type", "topics", "--entity-name", topic, "--add-config", "retention.ms=77"
        )
        shown = programs.configs("--describe", "--entity-type", "topics", "--entity-name", topic)
        assert "retention.ms=77" in shown
        programs.tool("TopicCommand", "--delete", "--topic", topic)
    assert programs.tool("TopicCommand", "--list").split() == []


@pytest.mark.parametrize("version", [NEWEST], indirect=True)
def test_a_share_group_takes_the_jobs_of_all_cells(programs: Programs) -> None:
    # kafka-topics knows only Kafka's own settings.
    admin: Any = AdminClient({"bootstrap.servers": programs.address})
    made = admin.create_topics([NewTopic(queue, 1, 1, config={"topics.type": "queue"}) for queue in QUEUES])
    for queue in QUEUES:
        made[queue].result(30)
        produce(programs, queue, 20)
        console = ("--topic", queue, "--group", "mailers", "--timeout-ms", "30000")
        told = programs.tool("consumer.ConsoleShareConsumer", *console, "--max-messages", "3")
        assert len(told.splitlines()) == 3
    assert programs.tool(SHARES, "--list").split() == ["mailers"]
    found = rows(programs.tool(SHARES, "--describe", "--group", "mailers"))
    assert sorted(row[1:3] for row in found) == sorted([queue, "0"] for queue in QUEUES)
    assert "Successful" in programs.tool(SHARES, "--delete-offsets", "--group", "mailers", "--topic", QUEUES[0])
    programs.tool(SHARES, "--delete", "--group", "mailers")
    assert programs.tool(SHARES, "--list").split() == []
