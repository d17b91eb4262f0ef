"""A killed member sends no LeaveGroup: its session expires, and the others continue from its committed offsets."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from confluent_kafka import Consumer

from tests.kafka.groups.reading import held, poll, values
from tests.kafka.groups.server import Server

#: Commits the first record that it gets, then reports that and reads no more.
_MEMBER = """
import sys
from confluent_kafka import Consumer
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "g", "auto.offset.reset": "earliest",
    "session.timeout.ms": 2000, "heartbeat.interval.ms": 100, "enable.auto.commit": False})
consumer.subscribe(["a"])
while True:
    message = consumer.poll(1)
    if message is not None and message.error() is None:
        consumer.commit(message, asynchronous=False)
        print("committed", flush=True)
        while True:
            consumer.pause(consumer.assignment())
            consumer.poll(1)
"""


def test_the_partitions_of_a_killed_member_are_reassigned_after_its_session(
    server: Server, member: Callable[..., Consumer], produce: Callable[..., None]
) -> None:
    produce("a", "1", "2", "3")
    killed = subprocess.Popen([sys.executable, "-c", _MEMBER, server.address], stdout=subprocess.PIPE, text=True)
    with killed:
        try:
            assert killed.stdout is not None
            assert killed.stdout.readline() == "committed\n"
        finally:
            killed.kill()
    other = member("g", "a", partition_assignment_strategy="range")
    assert values(poll([other], lambda found: len(found) == 2)) == ["2", "3"]
    assert held(other) == {("a", 0)}
