"""A topic whose partitions are in several cells, while one of the cells is gone after kill -9."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from broker.cells import home_cell
from storage.records import partition_of
from tests.support.broker_process import BrokerProcess, verify
from topics_client import Client, NotReady, Producer, RetryPolicy

CELLS = 3
PARTITIONS = 4
HOME = 1
#: The cell of partition 1 alone.
OTHER = 2
THERE = [0, 2, 3]
#: It maps to partition 3.
TAG = next(tag for tag in (f"tag-{number}" for number in count()) if partition_of(tag.encode(), PARTITIONS) == 3)
#: Topics whose home is HOME, one for each test.
NAMES = (name for name in (f"orders-{number}" for number in count()) if home_cell(name, CELLS) == HOME)


class CellSet(BrokerProcess):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory, cells=CELLS, wal_shards=1)

    @contextmanager
    def without(self, cell: int) -> Iterator[None]:
        """The cell is killed, and the supervisor, which is stopped, does not start it again before the end."""
        self.signal(signal.SIGSTOP)
        try:
            self.kill_cell(cell)
            yield
        finally:
            self.signal(signal.SIGCONT)
            self.wait_ready()

    def put(self, path: str) -> None:
        """Make the topic, with a record in each partition."""
        # A cell that has just started may not accept calls of other cells yet.
        self.until(lambda: self.call("PUT", path, {"partitions": PARTITIONS})[0] in (200, 201))
        for partition in range(PARTITIONS):
            assert self.append(path, partition)["first_seq"] == 1

    def append(self, path: str, partition: int) -> Any:
        return self.ok("POST", f"{path}?partition={partition}", {"records": [{"data": 1}], "create": False})

    def state(self, path: str, query: str = "?complete=true") -> Any:
        return self.ok("GET", f"{path}{query}")

    def counts(self, path: str) -> list[int]:
        """The records of each partition."""
        return [each["count"] for each in self.state(path)["partitions"]]


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CellSet]:
    with CellSet(tmp_path_factory.mktemp("cells")) as found:
        found.start()
        yield found
        assert found.stop() == 0
        verify(found.data_dir)


@pytest.fixture
def path(cells: CellSet) -> str:
    """The path of a topic."""
    made = f"/v0/topics/{next(NAMES)}"
    cells.put(made)
    return made


def away(answer: tuple[int, Any], cell: int) -> None:
    """The answer says that this cell is away, and that nothing was done."""
    status, body = answer
    assert (status, body["error"]["code"]) == (503, "not_ready"), answer
    assert (body["error"]["detail"]["cell"], body["error"]["detail"]["outcome"]) == (cell, "none"), answer


def test_the_state_of_a_topic_names_the_partitions_of_the_lost_cell(cells: CellSet, path: str) -> None:
    topic = path.rpartition("/")[2]
    with cells.without(OTHER):
        state = cells.state(path, "")
        assert [each["partition"] for each in state["partitions"]] == THERE
        assert state["offline_partitions"] == [{"partition": 1, "cell": OTHER}]
        assert state["count"] == len(THERE)
        assert state["config"]["partitions"] == PARTITIONS
        away(cells.call("GET", f"{path}?complete=true"), OTHER)
        away(cells.call("GET", "/v0/topics"), OTHER)
        with Client(f"http://127.0.0.1:{cells.port}", retry=RetryPolicy(total_s=0)) as client:
            with pytest.raises(NotReady):
                client.state(topic)
            found = client.state(topic, complete=False)
            assert (found.of(3).count, [each.partition for each in found.offline_partitions]) == (1, [1])
            with pytest.raises(NotReady):
                found.of(1)
            with Producer(client) as producer:
                assert producer.send(topic, "new", tag=TAG).result(30).partition == 3
    state = cells.state(path)
    assert ([each["partition"] for each in state["partitions"]], state["count"]) == ([0, 1, 2, 3], PARTITIONS + 1)
    assert "offline_partitions" not in state


def test_changes_are_refused_while_a_cell_is_lost_and_nothing_has_changed(cells: CellSet, path: str) -> None:
    before = cells.state(path)
    with cells.without(OTHER):
        away(cells.call("PATCH", path, {"cap_records": 5}), OTHER)
        away(cells.call("PUT", path, {"partitions": PARTITIONS + 2}), OTHER)
        away(cells.call("DELETE", path), OTHER)
        away(cells.call("DELETE", f"{path}?if_empty=true"), OTHER)
        cells.append(path, 2)
    assert cells.state(path)["config"] == before["config"]
    assert cells.counts(path) == [1, 1, 2, 1]
    cells.append(path, 1)
    assert cells.ok("PATCH", path, {"cap_records": 5})["config"]["cap_records"] == 5
    assert cells.ok("DELETE", path)["deleted"] is True


def test_without_the_cell_of_partition_0_only_the_other_partitions_answer(cells: CellSet, path: str) -> None:
    with cells.without(HOME):
        away(cells.call("GET", path), HOME)
        away(cells.call("PATCH", path, {"cap_records": 5}), HOME)
        away(cells.call("DELETE", path), HOME)
        for partition in (1, 2):
            cells.append(path, partition)
    assert cells.counts(path) == [1, 2, 2, 1]


def test_a_deletion_whose_cell_is_killed_has_not_begun_or_ends_by_itself(cells: CellSet, path: str) -> None:
    for killed in (HOME, OTHER, HOME, OTHER):
        with ThreadPoolExecutor(1) as thread:
            deleting = thread.submit(cells.call, "DELETE", path)
            time.sleep(random.random() * 0.03)
            cells.kill_cell(killed)
        cells.wait_ready()
        status, answer = deleting.result()
        cells.until(lambda: cells.call("GET", f"{path}?complete=true")[0] in (200, 404))
        exists = cells.call("GET", path)[0] == 200
        if status == 200:
            assert not exists
        else:
            assert (status, answer["error"]["detail"]["cell"]) == (503, killed), answer
            assert exists or answer["error"]["detail"]["outcome"] == "unknown", answer
        if exists:
            assert cells.counts(path) == [1] * PARTITIONS
            assert cells.ok("DELETE", path)["deleted"] is True
        cells.put(path)
