"""Topics whose partitions are in several cells, as clients of the gateway see them."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

from broker.cells import home_cell
from storage.records import partition_of
from tests.support.broker_process import BrokerProcess, verify
from topics_client import Client, Consumer, Producer, Record

CELLS = 3
PARTITIONS = 4
TOPIC = "orders"
HOME = home_cell(TOPIC, CELLS)


class CellSet(BrokerProcess):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory, cells=CELLS, wal_shards=1)

    def append(self, data: Any, query: str = "", **more: Any) -> dict[str, Any]:
        return self.ok("POST", f"/v0/topics/{TOPIC}{query}", {"records": [{"data": data}], **more})

    def data(self, partition: int) -> list[Any]:
        read = self.ok("POST", f"/v0/topics/{TOPIC}/diff?partition={partition}", {"from_seq": 0})
        return [record["data"] for record in read["records"]]


@pytest.fixture
def cells(tmp_path: Path) -> Iterator[CellSet]:
    with CellSet(tmp_path) as found:
        found.start()
        found.ok("PUT", f"/v0/topics/{TOPIC}", {"partitions": PARTITIONS})
        yield found
        assert found.stop() == 0
        verify(found.data_dir)


def cell_of(partition: int) -> int:
    return (HOME + partition) % CELLS


def test_writes_and_reads_of_all_partitions(cells: CellSet) -> None:
    parts = [cells.append({"n": number})["partition"] for number in range(8)]
    assert parts == [0, 1, 2, 3, 0, 1, 2, 3]
    for partition in range(PARTITIONS):
        answer = cells.append({"at": partition}, f"?partition={partition}")
        assert (answer["partition"], answer["first_seq"]) == (partition, 3)
        assert cells.data(partition) == [{"n": partition}, {"n": partition + 4}, {"at": partition}]
    by_tag = cells.ok("POST", f"/v0/topics/{TOPIC}", {"records": [{"data": 1, "tag": "a"}, {"data": 2, "tag": "a"}]})
    assert by_tag["partition"] == partition_of(b"a", PARTITIONS)
    keyed = [cells.append("once", idempotency_key=f"key-{number}") for number in range(6)]
    again = [cells.append("once", idempotency_key=f"key-{number}") for number in range(6)]
    assert [each["partition"] for each in keyed] == [partition_of(b"key-%d" % each, PARTITIONS) for each in range(6)]
    assert [(each["partition"], each["first_seq"], each["deduped"]) for each in again] == [
        (each["partition"], each["first_seq"], True) for each in keyed
    ]
    large = cells.append("x" * 300_000, "?partition=1")
    assert (large["partition"], large["count"]) == (1, 1)
    state = cells.ok("GET", f"/v0/topics/{TOPIC}")
    assert [each["partition"] for each in state["partitions"]] == [*range(PARTITIONS)]
    assert state["count"] == sum(each["count"] for each in state["partitions"]) == 8 + PARTITIONS + 2 + 6 + 1
    [listed] = cells.ok("GET", "/v0/topics")["topics"]
    assert listed["count"] == state["count"]
    assert cells.call("POST", f"/v0/topics/{TOPIC}?partition=4", {"records": [{"data": 1}]})[0] == 400
    assert cells.call("POST", f"/v0/topics/{TOPIC}/diff?partition=4", {"from_seq": 0})[0] == 400


def test_records_and_consumers_of_a_partition(cells: CellSet) -> None:
    for number in range(8):
        cells.append(number)
    for partition in range(PARTITIONS):
        query = f"?partition={partition}"
        cells.ok("PUT", f"/v0/topics/{TOPIC}/consumers/mine{query}", {})
        read = cells.ok("POST", f"/v0/topics/{TOPIC}/consumers/mine/read{query}", {})
        assert [record["data"] for record in read["records"]] == [partition, partition + 4]
        cells.ok("POST", f"/v0/topics/{TOPIC}/consumers/mine/commit{query}", {"seq": 1})
        listed = cells.ok("GET", f"/v0/topics/{TOPIC}/consumers{query}")["consumers"]
        assert [each["consumer"] for each in listed] == ["mine"]
        deleted = cells.ok("POST", f"/v0/topics/{TOPIC}/delete{query}", {"before_seq": 2})
        assert deleted["deleted"] == 1
        assert cells.data(partition) == [partition + 4]


def test_a_topic_is_grown_changed_deleted_and_made_again(cells: CellSet) -> None:
    cells.append("old", "?partition=1")
    before = cells.append("once", idempotency_key="a-key")
    cells.ok("PUT", f"/v0/topics/{TOPIC}", {"partitions": 7, "cap_records": 50})
    again = cells.append("once", idempotency_key="a-key")
    assert (again["partition"], again["first_seq"], again["deduped"]) == (
        before["partition"],
        before["first_seq"],
        True,
    )
    assert cells.append("new", "?partition=6")["first_seq"] == 1
    assert cells.ok("GET", f"/v0/topics/{TOPIC}")["config"]["cap_records"] == 50
    assert cells.call("DELETE", f"/v0/topics/{TOPIC}?if_empty=true")[0] == 409
    assert cells.data(6) == ["new"]
    cells.ok("DELETE", f"/v0/topics/{TOPIC}")
    for partition in range(7):
        query = f"?partition={partition}"
        assert cells.call("POST", f"/v0/topics/{TOPIC}/diff{query}", {"from_seq": 0})[0] == 404
        assert cells.call("POST", f"/v0/topics/{TOPIC}{query}", {"records": [{"data": 1}], "create": False})[0] == 404
    cells.ok("PUT", f"/v0/topics/{TOPIC}", {"partitions": 2})
    assert cells.append("again", "?partition=1")["first_seq"] == 1
    assert cells.data(1) == ["again"]


def test_what_was_acked_is_there_after_each_cell_was_killed(cells: CellSet) -> None:
    acked: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
    number = 0
    for killed in range(CELLS):
        for _ in range(6):
            acked[cells.append(number)["partition"]].append(number)
            number += 1
        cells.kill_cell(killed)
        for partition in range(PARTITIONS):
            if killed not in (HOME, cell_of(partition)):
                assert cells.append(number, f"?partition={partition}")["partition"] == partition
                acked[partition].append(number)
                number += 1
        cells.wait_ready()
    for partition in range(PARTITIONS):
        assert cells.data(partition) == acked[partition]


def test_a_watch_of_all_partitions_is_one_stream(cells: CellSet) -> None:
    for number in range(4):
        cells.append(number)
    body = {"topics": {TOPIC: {"from_seq": 0, "partitions": [0, 1, 2, 3]}}}
    session = cells.ok("POST", "/v0/watch", body)
    assert [each["partition"] for each in session["topics"][TOPIC]["partitions"]] == [0, 1, 2, 3]
    seen: dict[int, Any] = {}
    with urllib.request.urlopen(f"http://127.0.0.1:{cells.port}/v0/watch/{session['wid']}", timeout=30) as stream:
        for line in stream:
            if line.startswith(b"data: ") and b'"records"' in line:
                event = json.loads(line[6:])
                seen[event.get("partition", 0)] = [record["data"] for record in event["records"]]
            if len(seen) == PARTITIONS:
                break
    assert seen == {0: [0], 1: [1], 2: [2], 3: [3]}
    with connect(f"ws://127.0.0.1:{cells.port}/v0/ws") as socket:
        socket.send(
            json.dumps({"op": "subscribe", "request_id": 1, "topic": TOPIC, "from_seq": 0, "partitions": [0, 1, 2]})
        )
        answer = json.loads(socket.recv(timeout=30))
        assert answer["request_id"] == 1
        assert [each["partition"] for each in answer["topics"][TOPIC]["partitions"]] == [0, 1, 2]
        found: dict[int, Any] = {}
        while len(found) < 3:
            event = json.loads(socket.recv(timeout=30))
            if event["op"] == "record":
                found[event.get("partition", 0)] = [record["data"] for record in event["records"]]
        assert found == {0: [0], 1: [1], 2: [2]}
        socket.send(
            json.dumps({"op": "publish", "request_id": 2, "topic": TOPIC, "partition": 2, "records": [{"data": 9}]})
        )
        left = {"ack", "record"}
        while left:
            left.discard(json.loads(socket.recv(timeout=30))["op"])
        socket.send(json.dumps({"op": "unsubscribe", "request_id": 3, "topic": TOPIC, "partitions": [0, 1, 2]}))
        while (answer := json.loads(socket.recv(timeout=30)))["op"] != "unsubscribed":
            pass
        assert answer["topics"] == [TOPIC]


def test_the_python_client_reads_and_writes_all_partitions(cells: CellSet) -> None:
    with Client(f"http://127.0.0.1:{cells.port}") as client:
        with Producer(client) as producer:
            for number in range(40):
                producer.send(TOPIC, {"n": number}, tag=f"tag-{number}")
        found: list[int] = []
        with Consumer(client, TOPIC, "reader") as consumer:
            for record in consumer:
                assert isinstance(record, Record)
                found.append(record.data["n"])
                if len(found) == 40:
                    break
        assert sorted(found) == [*range(40)]
