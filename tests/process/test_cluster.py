"""Nodes of a cluster on one bucket are killed, paused, stopped and cut off from it: what was acked is there, and nobody
answers for a cell that another node owns."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from broker.cluster import ClusterMap, Member, OwnersFile, Plan, order
from loadtest.slow_s3 import BUCKET, SlowS3
from storage import home_cell
from storage.bucket import keys, open_location, parse_location, sign
from tests.conftest import is_soak
from tests.support.broker_process import ROOT, BrokerProcess, environment

pytestmark = [pytest.mark.timeout(600)]

CELLS = 2
ROUNDS = 20 if is_soak(os.environ) else 2
#: Two nodes are a dozen processes, and a crowded machine starts them slowly.
PATIENCE_S = 180.0
URL = f"s3://{BUCKET}/clusters/one"
CALL_S = 10.0
JSON = {"content-type": "application/json"}


class ClusterNode(BrokerProcess):
    """A node, with all its processes."""

    def __init__(self, folder: Path, name: str, url: str = URL) -> None:
        (folder / name).mkdir()
        super().__init__(folder / name, cluster_url=url, node=name, cluster_port=0, cell_ports=0, gateways=1)
        self.name = name
        self._owners = OwnersFile(self.data_dir / "run")

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def map(self) -> ClusterMap | None:
        """Who owns the cells, as this node knows it."""
        return self._owners.read()

    def owned(self) -> list[int]:
        found = self.map()
        return [] if found is None else [cell for cell in range(CELLS) if found.is_local(cell)]

    def processes(self) -> list[int]:
        """The supervisor and its children."""
        of = [self.process.pid]
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                if int(stat[1]) == self.process.pid:
                    of.append(int(pid))
        return of

    def send_all(self, number: signal.Signals) -> None:
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def commands(self) -> dict[int, str]:
        """The short commands of its children: a process of a cell has the name of the cell."""
        found: dict[int, str] = {}
        for pid in self.processes()[1:]:
            with contextlib.suppress(OSError):
                found[pid] = Path(f"/proc/{pid}/comm").read_text().strip()
        return found

    def cells(self) -> dict[int, str]:
        """Those of its processes of cells."""
        return {pid: each for pid, each in self.commands().items() if each.startswith("cell-")}

    def spares(self) -> list[int]:
        """Its processes that wait for a cell."""
        found: list[int] = []
        for pid in self.commands().keys() - self.cells().keys():
            with contextlib.suppress(OSError):
                if b"--spare" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return found

    def ended(self, code: int) -> bool:
        """Whether a cell's process of this node has ended with that code, by the log."""
        return re.search(rf"process_ended.*exit_code={code}\b", self.plain_log()) is not None

    def plain_log(self) -> str:
        return re.sub(r"\x1b\[[0-9;]*m", "", self.log())

    def forget_log(self) -> None:
        """Its processes write on at the beginning."""
        self._log.write_bytes(b"")


class Rig:
    """A cluster and its nodes. Several tests use it one after the other; `topics` are those of the running test."""

    def __init__(self, folder: Path, url: str = URL) -> None:
        self.url = url
        self.nodes = {name: ClusterNode(folder, name, url) for name in ("a", "b")}
        self._names = (f"t{number}" for number in itertools.count())
        self.topics: dict[int, str] = {}

    def begin(self) -> None:
        """Let a test find both nodes at work, nothing ordered, an empty topic in each cell, and logs of its own."""
        order(
            open_location(parse_location(self.url)),
            Plan(),
            lambda plan: msgspec.structs.replace(plan, cells={}, drained=()),
        )
        for node in self.nodes.values():
            if not node.runs:
                node.launch()
        self.until(self.agreed)
        for cell in range(CELLS):
            self.topics[cell] = next(each for each in self._names if home_cell(each, CELLS) == cell)
            self.until(lambda cell=cell: self._makes(cell))
        for node in self.nodes.values():
            node.forget_log()

    def agreed(self) -> bool:
        """Whether both nodes know the same owners of all cells."""
        maps = [node.map() for node in self.nodes.values()]
        for cell in range(CELLS):
            owners = [None if known is None else known.owner(cell) for known in maps]
            names = {None if owner is None else owner.node for owner in owners}
            if len(names) > 1 or None in names:
                return False
        return True

    def _makes(self, cell: int) -> bool:
        with contextlib.suppress(*FAILED):  # it may have been given away just now
            return self.call(cell, "PUT", f"/v0/topics/{self.topics[cell]}", {"durability": "fsync"})[0] in (200, 201)
        return False

    def start(self, name: str) -> None:
        node = self.nodes[name]
        node.launch()
        node.until(lambda: node.map() is not None)

    def until(self, condition: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + patience_s
        while not condition():
            assert time.monotonic() < deadline, "\n".join(f"{each.name}:\n{each.log()}" for each in self.nodes.values())
            time.sleep(0.05)

    def owner(self, cell: int, *, but: str = "") -> str | None:
        """The node that a running node, other than `but`, says to own the cell."""
        for node in self.nodes.values():
            if node.name != but and node.runs and (found := node.map()) is not None:
                owner = found.owner(cell)
                if owner is not None and owner.node != but:
                    return owner.node
        return None

    def whole(self, *, but: str = "") -> bool:
        return all(self.owner(cell, but=but) is not None for cell in range(CELLS))

    def address(self, cell: int, at: str) -> tuple[str, int]:
        """Where clients reach the cell at a node."""
        found = self.nodes[at].map()
        assert found is not None
        owner = found.owner(cell)
        assert owner is not None
        assert owner.http is not None
        return owner.http.host, owner.http.port

    def call(self, cell: int, method: str, path: str, body: Any = None, *, but: str = "") -> tuple[int, Any]:
        """Ask the owner of a cell. Raises OSError, HTTPException, AssertionError if there is none."""
        owner = self.owner(cell, but=but)
        assert owner is not None
        return request(self.address(cell, owner), method, path, body)


def request(address: tuple[str, int], method: str, path: str, body: Any = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(*address, timeout=CALL_S)
    with contextlib.closing(connection):
        connection.request(method, path, None if body is None else json.dumps(body), JSON if body else {})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


FAILED = (OSError, http.client.HTTPException, AssertionError)


class Writer(threading.Thread):
    """Appends numbers to the topic of one cell, and notes those that were acked."""

    def __init__(self, rig: Rig, cell: int) -> None:
        super().__init__(daemon=True)
        self._rig, self._cell, self._topic = rig, cell, rig.topics[cell]
        self.acked: list[int] = []
        self.done = threading.Event()

    def run(self) -> None:
        number = 0
        while not self.done.is_set():
            number += 1  # a number whose outcome is unknown is never sent again
            try:
                body = {"records": [{"data": number}]}
                status, _ = self._rig.call(self._cell, "POST", f"/v0/topics/{self._topic}", body)
            except FAILED:
                time.sleep(0.05)
                continue
            if status == 200:
                self.acked.append(number)
            else:
                time.sleep(0.05)


@contextlib.contextmanager
def store() -> Generator[contextlib.ExitStack]:
    """A bucket with a cluster, which the environment leads to. The server stops when the stack is closed."""
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        for name, value in stack.enter_context(SlowS3()).environment.items():
            patch.setenv(name, value)
        make_cluster(URL)
        yield stack


def make_cluster(url: str) -> None:
    made = subprocess.run(
        [sys.executable, "-m", "storage", "cluster", "init", url, "--cells", str(CELLS)],
        cwd=ROOT, env=environment(Path("unused")), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr


@contextlib.contextmanager
def running(url: str = URL) -> Generator[Rig]:
    # A short path: it has unix sockets.
    folder = Path(tempfile.mkdtemp(prefix="tc"))
    rig = Rig(folder, url)
    try:
        for name in rig.nodes:
            rig.nodes[name].launch()
        yield rig
    finally:
        for node in rig.nodes.values():
            node.kill()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def shared() -> Iterator[Rig]:
    """One cluster for the tests of a module: its start takes longer than most of them."""
    with store(), running() as rig:
        yield rig


@pytest.fixture
def rig(shared: Rig) -> Rig:
    shared.begin()
    return shared


def contents(rig: Rig, cell: int, *, but: str = "") -> list[int]:
    found: list[int] = []
    while True:
        path = f"/v0/topics/{rig.topics[cell]}/records?limit=1000&from_seq={len(found)}"
        status, answer = rig.call(cell, "GET", path, but=but)
        assert status == 200, answer
        if not answer["records"]:
            return found
        found += [each["data"] for each in answer["records"]]


def settled_contents(rig: Rig, cell: int) -> list[int]:
    """The same, when the cell may be given to another node meanwhile: then what is read begins again."""
    read: list[list[int]] = []

    def is_read() -> bool:
        with contextlib.suppress(*FAILED):
            read.append(contents(rig, cell))
        return bool(read)

    rig.until(is_read)
    return read[0]


def test_no_acked_write_is_lost_when_whole_nodes_are_killed(rig: Rig) -> None:
    kill_nodes(rig, ROUNDS)


def kill_nodes(rig: Rig, rounds: int) -> None:
    """Kill one after the other, while both cells are written to, and read all that was acked."""
    writers = [Writer(rig, cell) for cell in range(CELLS)]
    for each in writers:
        each.start()
    try:
        for number in range(rounds):
            rig.until(rig.whole)
            victim = rig.owner(number % CELLS)
            assert victim is not None
            rig.nodes[victim].kill()
            rig.until(lambda victim=victim: rig.whole(but=victim))
            before = [len(each.acked) for each in writers]
            rig.until(lambda before=before: all(len(w.acked) > n for w, n in zip(writers, before, strict=True)))
            rig.start(victim)
    finally:
        for each in writers:
            each.done.set()
    for each in writers:
        each.join()
    for cell, each in enumerate(writers):
        found = settled_contents(rig, cell)
        assert set(each.acked) <= set(found), "acked records are lost"
        assert len(found) == len(set(found)), "records are doubled"
        assert found == sorted(found)


def test_a_paused_node_answers_nothing_old_when_it_goes_on(rig: Rig) -> None:
    victim = rig.owner(0)
    assert victim is not None
    address = rig.address(0, victim)
    path = f"/v0/topics/{rig.topics[0]}"
    assert request(address, "POST", path, {"records": [{"data": 1}]})[0] == 200
    rig.nodes[victim].send_all(signal.SIGSTOP)
    with contextlib.closing(http.client.HTTPConnection(*address, timeout=CALL_S)) as waiting:
        waiting.request("GET", path)  # the kernel takes it for the paused process
        rig.until(lambda: rig.whole(but=victim))
        status, answer = rig.call(0, "POST", path, {"records": [{"data": 2}]}, but=victim)
        assert status == 200, answer
        rig.nodes[victim].send_all(signal.SIGCONT)
        with pytest.raises((OSError, http.client.HTTPException)):
            waiting.getresponse()
    rig.until(lambda: rig.nodes[victim].owned() == [] or "exit_code=71" in rig.nodes[victim].plain_log())
    assert contents(rig, 0, but=victim) == [1, 2]


def test_a_stopped_node_gives_its_cells_to_another_one(rig: Rig) -> None:
    rig.until(lambda: rig.owner(0) is not None)  # it may have changed its node just now
    leaver = rig.owner(0)
    assert leaver is not None
    [stayer] = set(rig.nodes) - {leaver}
    rig.until(lambda: rig.nodes[stayer].map() is not None)
    writers = [Writer(rig, cell) for cell in range(CELLS)]
    for each in writers:
        each.start()
    rig.until(lambda: all(len(each.acked) > 20 for each in writers))
    assert rig.nodes[leaver].stop() == 0
    rig.until(lambda: sorted(rig.nodes[stayer].owned()) == list(range(CELLS)))
    before = [len(each.acked) for each in writers]
    rig.until(lambda: all(len(each.acked) > n for each, n in zip(writers, before, strict=True)))
    for each in writers:
        each.done.set()
        each.join()
    assert "cell_given" in rig.nodes[leaver].plain_log()
    for cell, each in enumerate(writers):
        assert set(each.acked) <= set(contents(rig, cell, but=leaver))


def test_a_second_node_of_the_same_name_does_not_start(rig: Rig) -> None:
    folder = Path(tempfile.mkdtemp(prefix="tc"))
    try:
        with ClusterNode(folder, "a") as twin:
            twin.launch()
            assert twin.wait() == 1
            assert "is node a of this cluster" in twin.log()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_any_node_answers_for_all_cells_also_when_the_other_is_killed(rig: Rig) -> None:
    """The gateway of a node reaches the cells of the other one by relays, and takes them over in a process that was
    there already."""
    rig.until(lambda: {rig.owner(cell) for cell in range(CELLS)} == set(rig.nodes))
    for node in rig.nodes.values():
        node.wait_listening()

    def through(name: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        return request(("127.0.0.1", rig.nodes[name].port), method, path, body)

    def written(name: str, cell: int, number: int) -> bool:
        body = {"records": [{"data": number}], "idempotency_key": f"{cell}-{number}"}
        with contextlib.suppress(*FAILED):
            return through(name, "POST", f"/v0/topics/{rig.topics[cell]}", body)[0] in (200, 201)
        return False

    for number, name in enumerate(rig.nodes):
        for cell in range(CELLS):
            rig.until(lambda name=name, cell=cell, number=number: written(name, cell, number))
        status, answer = through(name, "GET", "/v0/cluster")
        assert status == 200
        assert (
            {each["node"] for each in answer["cells"]} == {each["node"] for each in answer["nodes"]} == set(rig.nodes)
        )
    [lost] = rig.nodes["a"].owned()
    rig.until(lambda: len(rig.nodes["b"].spares()) == 1)
    [spare] = rig.nodes["b"].spares()
    rig.nodes["a"].kill()
    for cell in range(CELLS):
        rig.until(lambda cell=cell: written("b", cell, 2))
    assert rig.nodes["b"].cells()[spare] == f"cell-{lost:02d}"
    for cell in range(CELLS):
        path = f"/v0/topics/{rig.topics[cell]}/records?limit=1000&from_seq=0"
        status, answer = through("b", "GET", path)
        assert (status, [each["data"] for each in answer["records"]]) == (200, [0, 1, 2])


def test_a_cell_is_served_although_its_spare_dies_before_it_shows_a_sign_of_life(rig: Rig) -> None:
    rig.until(lambda: {rig.owner(cell) for cell in range(CELLS)} == set(rig.nodes))
    [lost] = rig.nodes["a"].owned()
    status, answer = rig.call(lost, "POST", f"/v0/topics/{rig.topics[lost]}", {"records": [{"data": 1}]})
    assert status == 200, answer
    rig.until(lambda: len(rig.nodes["b"].spares()) == 1)
    [spare] = rig.nodes["b"].spares()
    os.kill(spare, signal.SIGSTOP)
    rig.nodes["a"].kill()

    bucket = open_location(parse_location(URL))

    def nonce() -> str | None:
        """Of the process that node b has for the cell, as its object in the bucket says."""
        found = bucket.get(f"{keys.MEMBERS}b")
        held = None if found is None else msgspec.json.decode(found, type=Member).cells.get(lost)
        return None if held is None else held.nonce

    rig.until(lambda: nonce() is not None)
    of_spare = nonce()
    assert of_spare is not None
    assert bucket.get(sign(of_spare)) is None
    assert spare in rig.nodes["b"].spares(), "it has not looked at its role"
    os.kill(spare, signal.SIGKILL)
    rig.until(lambda: rig.owner(lost, but="a") == "b")
    assert nonce() != of_spare
    assert rig.nodes["b"].ended(-signal.SIGKILL)
    assert spare not in rig.nodes["b"].processes()
    assert contents(rig, lost, but="a") == [1]
