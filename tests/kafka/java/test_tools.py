"""Kafka's command line tools print the same about this broker as about a Kafka broker."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from storage import TopicConfig, TopicType
from tests.kafka.groups.server import Server
from tests.kafka.java.programs import NEWEST, PATIENCE_S, Programs

GROUPS = "consumer.group.ConsumerGroupCommand"
SHARES = "consumer.group.ShareGroupCommand"
#: Tools that came with 4.0.
OF_SHARES = pytest.mark.parametrize("version", [NEWEST], indirect=True)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def produce(programs: Programs, topic: str, count: int, **settings: str) -> str:
    """The summary of kafka-producer-perf-test."""
    props = [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]
    given = ("--num-records", str(count), "--record-size", "100", "--throughput", "-1", "--producer-props")
    return programs.run(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, *given,
        f"bootstrap.servers={programs.address}", *props,
    )  # fmt: skip


def consume(programs: Programs, topic: str, count: int, group: str) -> int:
    """How many records kafka-consumer-perf-test has read."""
    much = "--num-records" if programs.is_newest else "--messages"
    told = programs.tool(
        "ConsumerPerformance", "--topic", topic, much, str(count), "--group", group, "--timeout", "30000"
    )
    return int(told.splitlines()[-1].split(", ")[4])


def rows(told: str) -> list[list[str]]:
    """The rows of a table below its header. The tool of 3.9 ends some rows with blanks instead of line ends."""
    found = [line.split() for line in told.splitlines() if line.strip()]
    head = next(number for number, row in enumerate(found) if row[0] == "GROUP")
    return found[head + 1 :]


def test_topics_are_made_described_grown_and_deleted(programs: Programs) -> None:
    made = programs.tool(
        "TopicCommand", "--create", "--topic", "t", "--partitions", "2", "--config", "retention.ms=3600000"
    )
    assert "Created topic t." in made
    told = programs.tool("TopicCommand", "--describe", "--topic", "t")
    assert re.search(
        r"Topic: t\tTopicId: \S+\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: retention.ms=3600000", told
    )
    # With several cells, the partitions have leaders of their own.
    assert len(re.findall(r"Leader: (\d)\tReplicas: \1\tIsr: \1\tElr: \tLastKnownElr:", told)) == 2
    programs.tool("TopicCommand", "--alter", "--topic", "t", "--partitions", "3")
    assert "PartitionCount: 3" in programs.tool("TopicCommand", "--describe", "--topic", "t")
    programs.tool("TopicCommand", "--delete", "--topic", "t")
    assert programs.tool("TopicCommand", "--list").split() == []


def test_produced_records_are_consumed_and_groups_can_be_reset(programs: Programs) -> None:
    assert "500 records sent" in produce(programs, "t", 500, compression_type="zstd", acks="all")
    assert consume(programs, "t", 500, "readers") == 500
    group = ("--group", "readers")
    assert rows(programs.tool(GROUPS, "--describe", *group))[0][:6] == ["readers", "t", "0", "500", "500", "0"]
    programs.tool(GROUPS, "--reset-offsets", *group, "--topic", "t", "--shift-by", "-40", "--execute")
    assert rows(programs.tool(GROUPS, "--describe", *group))[0][:6] == ["readers", "t", "0", "460", "500", "40"]
    assert programs.tool("GetOffsetShell", "--topic", "t").split() == ["t:0:500"]


@pytest.mark.soak
@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_accepted(programs: Programs, codec: str) -> None:
    assert "2000 records sent" in produce(programs, "t", 2000, compression_type=codec)
    assert consume(programs, "t", 2000, "readers") == 2000


@pytest.mark.soak
def test_groups_are_listed_reset_and_deleted(programs: Programs) -> None:
    produce(programs, "t", 100)
    consume(programs, "t", 100, "readers")
    group = ("--group", "readers")
    assert programs.tool(GROUPS, "--list").split() == ["readers"]
    assert programs.tool(GROUPS, "--list", "--state").split()[-2:] == ["readers", "Empty"]
    assert "Empty" in programs.tool(GROUPS, "--describe", *group, "--state")
    assert rows(programs.tool(GROUPS, "--describe", *group, "--members", "--verbose")) == []
    for how, offset in (
        (("--to-earliest",), "0"),
        (("--to-latest",), "100"),
        (("--to-offset", "7"), "7"),
        (("--to-datetime", "2020-01-01T00:00:00.000"), "0"),
        (("--by-duration", "PT0S"), "100"),
    ):
        told = programs.tool(GROUPS, "--reset-offsets", *group, "--all-topics", *how, "--execute")
        assert re.search(rf"readers +t +0 +{offset}\b", told), how
    assert "Successful" in programs.tool(GROUPS, "--delete-offsets", *group, "--topic", "t")
    assert "successful" in programs.tool(GROUPS, "--delete", *group)
    assert programs.tool(GROUPS, "--list").split() == []


@pytest.mark.soak
def test_a_consuming_group_is_described_with_members(programs: Programs, server: Server) -> None:
    produce(programs, "t", 10)
    with reading(programs, "ConsoleConsumer", "t"):
        until_described(programs, GROUPS, "--state", "Stable")
        told = programs.tool(GROUPS, "--describe", "--group", "readers", "--members", "--verbose")
        assert "console-consumer" in told
        assert re.search(r"\bt(:0|\(0\))", told) or rows(told)[0][4:] == ["1", "(0)"]


@contextmanager
def reading(programs: Programs, console: str, topic: str) -> Iterator[None]:
    """Meanwhile one member of the group keeps reading."""
    arguments = ("--bootstrap-server", programs.address, "--topic", topic, "--group", "readers")
    command = programs.command(f"org.apache.kafka.tools.consumer.{console}", *arguments)
    with subprocess.Popen(command, cwd=programs.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as reader:
        try:
            yield
        finally:
            reader.terminate()


def until_described(programs: Programs, tool: str, what: str, wanted: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while wanted not in (told := programs.tool(tool, "--describe", "--group", "readers", what)):
        assert time.monotonic() < deadline, told


@pytest.mark.soak
def test_offsets_are_listed(programs: Programs) -> None:
    produce(programs, "t", 10)
    found = {
        time_: programs.tool("GetOffsetShell", "--topic", "t", "--time", time_).split()
        for time_ in ("latest", "earliest", "max-timestamp", "earliest-local", "latest-tiered", "0", "-1", "-2")
    }
    [latest_time] = found.pop("max-timestamp")
    assert latest_time.startswith("t:0:")
    first, last = ["t:0:0"], ["t:0:10"]
    assert found == {
        "latest": last, "-1": last, "earliest": first, "-2": first, "0": first, "earliest-local": first,
        "latest-tiered": [],
    }  # fmt: skip


@pytest.mark.soak
def test_settings_are_described_and_altered(programs: Programs) -> None:
    programs.tool("TopicCommand", "--create", "--topic", "t")
    topic = ("--entity-type", "topics", "--entity-name", "t")
    assert "cleanup.policy=delete" in programs.configs("--describe", "--all", *topic)
    programs.configs("--alter", *topic, "--add-config", "retention.ms=7200000,max.message.bytes=500000")
    told = programs.configs("--describe", *topic)
    assert "retention.ms=7200000" in told
    assert "max.message.bytes=500000" in told
    programs.configs("--alter", *topic, "--delete-config", "retention.ms")
    assert "retention.ms" not in programs.configs("--describe", *topic)
    broker = ("--entity-type", "brokers")
    assert "broker.id=1" in programs.configs("--describe", "--all", *broker, "--entity-name", "1")
    assert "Dynamic configs for broker 1" in programs.configs("--describe", *broker)
    assert programs.configs("--describe", "--entity-type", "client-metrics") == ""


@OF_SHARES
def test_share_groups_take_jobs_and_are_described(programs: Programs, server: Server) -> None:
    # kafka-topics knows only Kafka's own settings, so a queue is created in another way.
    server.put_topic("jobs", TopicConfig(type=TopicType.QUEUE))
    produce(programs, "jobs", 20)
    console = ("--topic", "jobs", "--group", "mailers", "--timeout-ms", "30000")
    told = programs.tool("consumer.ConsoleShareConsumer", *console, "--max-messages", "3")
    assert len(told.splitlines()) == 3
    assert rows(programs.tool(SHARES, "--describe", "--group", "mailers")) == [["mailers", "jobs", "0", "3", "17"]]
    assert programs.tool("GroupsCommand", "--list").splitlines()[1].split() == ["mailers", "Share", "share"]


@pytest.mark.soak
@OF_SHARES
def test_share_groups_are_set_and_moved(programs: Programs, server: Server) -> None:
    server.put_topic("jobs", TopicConfig(type=TopicType.QUEUE))
    produce(programs, "jobs", 20)
    group = ("--entity-type", "groups", "--entity-name", "mailers")
    setting = "share.record.lock.duration.ms"
    assert "Completed" in programs.configs("--alter", *group, "--add-config", f"{setting}=60000")
    assert f"{setting}=60000" in programs.configs("--describe", *group)
    assert "Completed" in programs.configs("--alter", *group, "--delete-config", setting)
    assert f"{setting}=60000" not in programs.configs("--describe", *group)

    console = ("--topic", "jobs", "--group", "mailers", "--timeout-ms", "30000")

    def taken(count: int) -> int:
        return len(programs.tool("consumer.ConsoleShareConsumer", *console, "--max-messages", str(count)).splitlines())

    def stands() -> list[str]:
        return rows(programs.tool(SHARES, "--describe", "--group", "mailers"))[0][3:]

    assert taken(3) == 3
    assert stands() == ["3", "17"]
    reset = ("--reset-offsets", "--group", "mailers", "--topic", "jobs")
    programs.tool(SHARES, *reset, "--to-latest", "--dry-run")
    assert stands() == ["3", "17"]
    programs.tool(SHARES, *reset, "--to-earliest", "--execute")
    assert stands() == ["3", "17"]
    programs.tool(SHARES, *reset, "--to-latest", "--execute")
    assert stands() == ["20", "0"]
    assert "Successful" in programs.tool(SHARES, "--delete-offsets", "--group", "mailers", "--topic", "jobs")
    assert programs.tool(SHARES, "--list").split() == []


@pytest.mark.soak
@OF_SHARES
def test_share_groups_are_looked_at_and_deleted(programs: Programs, server: Server) -> None:
    server.put_topic("jobs", TopicConfig(type=TopicType.QUEUE))
    produce(programs, "jobs", 20)
    told = programs.tool(
        "ShareConsumerPerformance", "--topic", "jobs", "--num-records", "20", "--group", "readers", "--timeout", "30000"
    )
    assert told.splitlines()[-1].split(", ")[5] == "20"
    assert programs.tool(SHARES, "--list").split() == ["readers"]
    with reading(programs, "ConsoleShareConsumer", "jobs"):
        until_described(programs, SHARES, "--state", "Stable")
        until_described(programs, SHARES, "--members", "jobs:0")
    until_described(programs, SHARES, "--state", "Empty")
    assert "successful" in programs.tool(SHARES, "--delete", "--group", "readers")
    assert programs.tool(SHARES, "--list").split() == []
