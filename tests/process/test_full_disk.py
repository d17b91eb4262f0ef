"""A really full disk: writes are refused and leave nothing, other calls work, and no restart is needed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker_process import BrokerProcess, verify
from tests.support.small_disk import SMALL_LOG, SmallDisk

FULL = (507, "storage_full")
LEFT_BYTES = 1 << 20
CLASSES = ("fsync", "disk", "memory")
#: More than fits: filling ends before that.
MOST_WRITES = 1000


@pytest.fixture
def broker(tmp_path: Path, small_disk: SmallDisk) -> Iterator[BrokerProcess]:
    data_dir = small_disk.mount_point / "data"
    with BrokerProcess(tmp_path, data_dir=data_dir, prefix=small_disk.prefix, **SMALL_LOG) as process:
        process.start()
        yield process


def batch(name: str) -> dict[str, Any]:
    return {"records": [{"data": [name, index, "x" * 2000]} for index in range(4)], "idempotency_key": name}


def write_until_full(broker: BrokerProcess, topics: tuple[str, ...], acked: dict[str, list[str]]) -> int:
    """Write to the topics in turn until there is no space. Returns how many batches were acknowledged, and adds them to
    `acked`."""
    for number in range(MOST_WRITES):
        topic = topics[number % len(topics)]
        name = f"{topic} {len(acked[topic])}"
        status, answer = broker.call("POST", f"/v0/topics/{topic}", batch(name))
        if status not in (200, 201):
            assert (status, answer["error"]["code"]) == FULL
            return number
        acked[topic].append(name)
    raise AssertionError("the disk does not get full")


def fill_to_the_brim(broker: BrokerProcess, disk: SmallDisk) -> dict[str, list[str]]:
    """Fill the disk until no byte is left and the broker has noticed; returns the acknowledged writes.

    A full broker retries from time to time and may then take the last free bytes, so it is asked many times.
    """
    acked: dict[str, list[str]] = {topic: [] for topic in CLASSES}
    disk.fill(leave_bytes=LEFT_BYTES)
    write_until_full(broker, CLASSES, acked)
    quiet = 0
    while quiet < 20:
        disk.fill(leave_bytes=0)
        taken = write_until_full(broker, CLASSES, acked)
        quiet = 0 if taken or disk.free_bytes() else quiet + 1
    assert all(acked.values())
    return acked


def served(broker: BrokerProcess, topic: str) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    cursor, caught_up = 0, False
    while not caught_up:
        answer = broker.ok("POST", f"/v0/topics/{topic}/diff", {"from_seq": cursor, "limit": 1000})
        found += [(record["data"][0], record["data"][1]) for record in answer["records"]]
        assert answer["tombstone"] is None
        cursor, caught_up = answer["next_from_seq"], answer["caught_up"]
    return found


def records_of(batches: list[str]) -> list[tuple[str, int]]:
    return [(name, index) for name in batches for index in range(4)]


def appends_again(broker: BrokerProcess, topic: str, body: dict[str, Any]) -> dict[str, Any]:
    """Repeat until the append is accepted. Returns the answer."""
    taken: list[dict[str, Any]] = []

    def asked() -> bool:
        status, answer = broker.call("POST", f"/v0/topics/{topic}", body)
        if status == 200:
            taken.append(answer)
        else:
            assert (status, answer["error"]["code"]) == FULL
        return status == 200

    broker.until(asked)
    return taken[0]


def refuses_what_needs_space(broker: BrokerProcess) -> None:
    for topic in CLASSES:
        assert broker.refused("POST", f"/v0/topics/{topic}", batch("late")) == FULL
    assert broker.refused("POST", "/v0/topics/new", batch("new")) == FULL
    assert broker.refused("PUT", "/v0/topics/new") == FULL
    assert broker.refused("GET", "/v0/topics/new") == (404, "topic_not_found")


def serves(broker: BrokerProcess, acked: dict[str, list[str]]) -> None:
    for topic in CLASSES:
        assert served(broker, topic) == records_of(acked[topic])
    assert broker.ok("GET", "/v0/ready")["status"] == "ready"


@pytest.mark.parametrize("started_full", [False, True], ids=["as-it-runs", "started-full"])
def test_a_full_disk_refuses_only_requests_that_need_space(
    broker: BrokerProcess, small_disk: SmallDisk, started_full: bool
) -> None:
    for topic in CLASSES:
        broker.ok("PUT", f"/v0/topics/{topic}", {"durability": topic})
    broker.ok("POST", "/v0/topics/doomed", {"records": [{"data": 1}]})
    broker.ok("POST", "/v0/topics/tagged", {"records": [{"data": 1, "tag": "a"}, {"data": 2, "tag": "b"}]})
    acked = fill_to_the_brim(broker, small_disk)
    if started_full:
        start_again_without_a_byte(broker, small_disk)
    refuses_what_needs_space(broker)
    serves(broker, acked)
    # A repeat with a known key is not a write.
    assert broker.ok("POST", "/v0/topics/fsync", batch(acked["fsync"][0]))["deduped"]
    # Calls that free space still work.
    assert broker.ok("POST", "/v0/topics/tagged/delete", {"match": "a"})["deleted"] == 1
    assert broker.ok("POST", "/v0/topics/fsync/delete", {"before_seq": 5})["deleted"] == 4
    assert broker.ok("DELETE", "/v0/topics/doomed")["deleted"]
    del acked["fsync"][0]
    start_again_without_a_byte(broker, small_disk)
    refuses_what_needs_space(broker)
    serves(broker, acked)
    assert broker.refused("GET", "/v0/topics/doomed") == (404, "topic_not_found")
    assert broker.ok("GET", "/v0/topics/tagged")["count"] == 1

    # With space it continues by itself. What had been refused does not exist, so its key is new and its seq the next
    # one.
    small_disk.relieve()
    for topic in CLASSES:
        head_seq = broker.ok("GET", f"/v0/topics/{topic}")["head_seq"]
        answer = appends_again(broker, topic, batch("late"))
        assert not answer["deduped"]
        assert answer["first_seq"] == head_seq + 1
        acked[topic].append("late")
    broker.kill()
    broker.start()
    serves(broker, acked)
    assert broker.stop() == 0
    verify(broker.data_dir, small_disk.prefix)


def start_again_without_a_byte(broker: BrokerProcess, disk: SmallDisk) -> None:
    """Kill it, take up the space that its death or its deletions have freed, and start it."""
    broker.kill()
    disk.fill(leave_bytes=0)
    assert disk.free_bytes() == 0
    verify(broker.data_dir, disk.prefix)
    broker.start()


def test_deleting_a_topic_frees_space_on_a_full_disk(broker: BrokerProcess) -> None:
    broker.ok("PUT", "/v0/topics/kept")
    write_until_full(broker, ("doomed",), {"doomed": []})
    assert broker.refused("POST", "/v0/topics/kept", batch("a")) == FULL
    assert broker.ok("DELETE", "/v0/topics/doomed")["deleted"]
    assert appends_again(broker, "kept", batch("a"))["first_seq"] == 1
    write_until_full(broker, ("kept",), {"kept": []})


def test_deleting_records_frees_space_on_a_full_disk(broker: BrokerProcess) -> None:
    acked: list[str] = []
    write_until_full(broker, ("log",), {"log": acked})
    last_seq = 4 * len(acked)
    assert broker.ok("POST", "/v0/topics/log/delete", {"before_seq": last_seq - 3})["deleted"] == last_seq - 4
    assert appends_again(broker, "log", batch("late"))["first_seq"] == last_seq + 1
    assert served(broker, "log") == records_of([acked[-1], "late"])
    assert broker.stop() == 0
    broker.start()
    assert served(broker, "log") == records_of([acked[-1], "late"])
