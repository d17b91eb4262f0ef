"""A set of cells as processes: start, kill -9 of a cell and of the supervisor, and refusals."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from broker.cells import home_cell
from tests.support.broker_process import BrokerProcess, wait_ended

CELLS = 3


class _Socket(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=120)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(120)
        self.sock.connect(str(self._path))


class CellSet(BrokerProcess):
    """A set without a gateway: requests go to the sockets of the cells."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, cells=CELLS, gateways=0, wal_shards=1)

    def wait_ready(self) -> None:
        self.until(lambda: all(self.ask(cell, "GET", "/v0/ready")[0] == 200 for cell in range(CELLS)))

    def ask(self, cell: int, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and answer of a request to a cell. Status 0: the cell is away."""
        connection = _Socket(self.data_dir / "run" / f"cell-{cell:02d}.http")
        with contextlib.closing(connection):
            try:
                text = None if body is None else json.dumps(body)
                connection.request(method, path, text, {"content-type": "application/json"})
                answer = connection.getresponse()
                content = answer.read()
            except OSError:
                return 0, None
        return answer.status, json.loads(content) if content else None


def _topic_of(cell: int) -> str:
    """A name whose home is this cell."""
    return next(name for number in range(99) if home_cell(name := f"orders-{number}", CELLS) == cell)


@pytest.fixture
def cells(tmp_path: Path) -> Any:
    with CellSet(tmp_path) as found:
        found.start()
        yield found


def test_a_killed_cell_recovers_its_acknowledged_writes_and_the_others_serve_meanwhile(cells: CellSet) -> None:
    names = [_topic_of(cell) for cell in range(CELLS)]
    for cell, name in enumerate(names):
        assert cells.ask(cell, "PUT", f"/v0/topics/{name}", {"durability": "fsync"})[0] == 201
        assert cells.ask(cell, "POST", f"/v0/topics/{name}", {"records": [{"data": cell}]})[0] == 200
    first = cells.cell_pid(1)
    cells.kill_cell(1)
    assert cells.ask(0, "POST", f"/v0/topics/{names[0]}", {"records": [{"data": 7}]})[0] == 200
    cells.wait_ready()
    assert cells.cell_pid(1) != first
    status, found = cells.ask(1, "POST", f"/v0/topics/{names[1]}/diff", {"from_seq": 0})
    assert (status, [record["data"] for record in found["records"]]) == (200, [1])
    assert "process_ended" in cells.log()
    assert cells.stop() == 0


def test_cells_end_with_a_killed_supervisor_and_the_next_start_finds_all(cells: CellSet) -> None:
    name = _topic_of(2)
    assert cells.ask(2, "POST", f"/v0/topics/{name}", {"records": [{"data": "x"}]})[0] == 201
    pids = [cells.cell_pid(cell) for cell in range(CELLS)]
    cells.kill()
    for pid in pids:
        wait_ended(pid)
    cells.start()
    status, found = cells.ask(2, "POST", f"/v0/topics/{name}/diff", {"from_seq": 0})
    assert (status, [record["data"] for record in found["records"]]) == (200, ["x"])


def test_a_cell_neither_serves_nor_creates_a_topic_of_another(cells: CellSet) -> None:
    name = _topic_of(1)
    for method, path, body in (
        ("PUT", f"/v0/topics/{name}", {}),
        ("POST", f"/v0/topics/{name}", {"records": [{"data": 1}]}),
        ("GET", f"/v0/topics/{name}", None),
    ):
        status, found = cells.ask(0, method, path, body)
        assert (status, found["error"]["code"], found["error"]["detail"]["cell"]) == (421, "not_mine", 1)
    assert cells.ask(0, "GET", "/v0/topics")[1]["topics"] == []
    assert cells.ask(1, "GET", f"/v0/topics/{name}")[0] == 404


def test_ids_of_cells_differ(cells: CellSet) -> None:
    epochs: list[int] = []
    for cell in range(CELLS):
        cells.ask(cell, "PUT", f"/v0/topics/{_topic_of(cell)}", {})
        epochs.append(cells.ask(cell, "GET", f"/v0/topics/{_topic_of(cell)}")[1]["epoch"])
    assert [epoch >> 42 for epoch in epochs] == [0, 1, 2]


def test_a_set_is_not_opened_with_another_number_of_cells(tmp_path: Path) -> None:
    with CellSet(tmp_path) as cells:
        cells.start()
        assert cells.stop() == 0
        for number, sentence in ((2, "is a set of 3 cells, not of 2"), (1, "start the broker with TOPICS_CELLS=3")):
            cells.launch(cells=number)
            assert cells.wait() == 1
            assert sentence in cells.log()


def test_the_directory_of_one_engine_is_not_taken_for_a_set(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as alone:
        alone.start()
        assert alone.stop() == 0
        alone.launch(cells=3)
        assert alone.wait() == 1
        assert "cells init" in alone.log()


def test_the_directory_of_one_engine_becomes_the_first_cell_with_all_its_data(tmp_path: Path) -> None:
    names = [_topic_of(cell) for cell in range(CELLS)]
    with BrokerProcess(tmp_path) as alone:
        alone.start()
        for name in names:
            assert alone.call("POST", f"/v0/topics/{name}", {"records": [{"data": name}]})[0] == 201
        alone.kill()
    command = [sys.executable, "-m", "storage", "cells", "init", str(alone.data_dir), "--cells", str(CELLS)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (made.returncode, made.stderr) == (0, "")
    assert f"TOPICS_CELLS={CELLS}" in made.stdout
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert "already" in again.stderr
    with CellSet(tmp_path) as cells:
        cells.start()
        for cell, name in enumerate(names):
            status, found = cells.ask(0, "POST", f"/v0/topics/{name}/diff", {"from_seq": 0})
            assert (status, [record["data"] for record in found["records"]]) == (200, [name])
            status, found = cells.ask(cell, "GET", f"/v0/topics/{name}")
            assert status == 200 if cell == 0 else found["error"]["detail"]["cell"] == 0
        # A name keeps its cell when its topic is created again.
        assert cells.ask(0, "DELETE", f"/v0/topics/{names[1]}")[0] in (200, 204)
        assert cells.ask(1, "PUT", f"/v0/topics/{names[1]}", {})[0] == 421
        assert cells.ask(0, "PUT", f"/v0/topics/{names[1]}", {})[0] == 201
