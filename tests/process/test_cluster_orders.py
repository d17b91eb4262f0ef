"""Cells are moved and nodes drained by `topics cluster`, under load and beside kills: no acked record is lost or
doubled, and what was ordered happens in the end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator

import pytest

from tests.conftest import is_soak
from tests.process import test_cluster
from tests.process.test_cluster import CELLS, Rig, Writer, settled_contents
from tests.support.broker_process import ROOT

pytestmark = [pytest.mark.timeout(600)]

#: There and back, in the soak tier twice.
MOVES = 4 if is_soak(os.environ) else 2

shared, rig = test_cluster.shared, test_cluster.rig


def topics(rig: Rig, at: str, *arguments: str, patience_s: float = 180) -> str:
    """Run `topics cluster` against the gateway of a node. What it shows, errors included."""
    rig.nodes[at].wait_listening()
    url = f"http://127.0.0.1:{rig.nodes[at].port}"
    done = subprocess.run(
        [sys.executable, "-m", "topics_client", "cluster", *arguments, "--url", url],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT / "clients" / "python")}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=patience_s, check=False,
    )  # fmt: skip
    shown = done.stdout + done.stderr
    # The status is not 0 while a cell starts.
    assert done.returncode == 0 or arguments[0] == "status", shown + rig.nodes[at].plain_log()
    return shown


@contextlib.contextmanager
def load(rig: Rig) -> Generator[list[Writer]]:
    """Appends to all cells meanwhile. At the end, all that was acked is there once."""
    writers = [Writer(rig, cell) for cell in range(CELLS)]
    for each in writers:
        each.start()
    try:
        rig.until(lambda: all(each.acked for each in writers))
        yield writers
        before = [len(each.acked) for each in writers]
        rig.until(lambda: all(len(each.acked) > n for each, n in zip(writers, before, strict=True)))
    finally:
        for each in writers:
            each.done.set()
            each.join()
    rig.until(rig.whole)
    for cell, each in enumerate(writers):
        found = settled_contents(rig, cell)
        assert set(each.acked) <= set(found), "acked records are lost"
        assert len(found) == len(set(found)), "records are doubled"
        assert found == sorted(found)


def other(name: str) -> str:
    return "b" if name == "a" else "a"


def owner(rig: Rig, cell: int) -> str:
    rig.until(lambda: rig.owner(cell) is not None)
    found = rig.owner(cell)
    assert found is not None
    return found


def test_a_cell_goes_where_it_is_ordered_under_load_and_stays_there(rig: Rig) -> None:
    with load(rig):
        for number in range(MOVES):
            target = other(owner(rig, 0))
            shown = topics(rig, "a" if number % 2 else "b", "move", "0", target)
            assert f"Cell 0 is at {target}." in shown
            rig.until(lambda target=target: rig.owner(0) == target)
        # Both cells at one node: the balance does not move those that were ordered there.
        target = owner(rig, 0)
        topics(rig, target, "move", "1", target)
        time.sleep(15)  # the balance acts when nothing has changed for 10 s
        assert [owner(rig, cell) for cell in range(CELLS)] == [target] * CELLS
        rows = [line.split() for line in topics(rig, target, "status").splitlines()]
        assert next(row[3:5] for row in rows if row[:1] == ["1"]) == [target, target]
        topics(rig, target, "move", "1", "--undo")
        rig.until(lambda: rig.owner(1) == other(target))


def test_a_drained_node_has_no_cells_and_takes_none_until_that_is_taken_back(rig: Rig) -> None:
    name = owner(rig, 0)
    stayer = other(name)
    with load(rig):
        shown = topics(rig, stayer, "drain", name)
        assert f"cell 0: {name} -> {stayer}" in shown
        assert f"{name} has no cells" in shown
        rig.until(lambda: "drained" in topics(rig, name, "status"))  # it goes on to answer
        assert rig.nodes[name].stop() == 0
        rig.start(name)
        rig.nodes[name].wait_listening()
        time.sleep(12)  # as long as the balance waits
        assert rig.nodes[name].owned() == []
        topics(rig, stayer, "drain", name, "--undo")
        rig.until(lambda: rig.nodes[name].owned() != [])


def pid_of_cell(rig: Rig, name: str, cell: int) -> int | None:
    """The process of a node that owns the cell or waits for it."""
    for pid, command in rig.nodes[name].commands().items():
        if command == f"cell-{cell:02d}":
            return pid
    return None


def _kill_cell(rig: Rig, name: str) -> None:
    pid = pid_of_cell(rig, name, 0)
    if pid is not None:
        os.kill(pid, signal.SIGKILL)


def _kill_node(rig: Rig, name: str) -> None:
    rig.nodes[name].kill()
    rig.start(name)


KILLS = {"process": _kill_cell, "node": _kill_node}
CASES = [
    (moment, victim, kill)
    for moment in ("ordered", "waiting", "given")
    for victim in ("source", "target")
    for kill in KILLS
]
#: These run in each slow tier, and the others in the soak tier.
USUAL = [("ordered", "source", "node"), ("waiting", "target", "process"), ("given", "target", "node")]


@pytest.mark.parametrize(
    ("moment", "victim", "kill"),
    [case if case in USUAL else pytest.param(*case, marks=pytest.mark.soak) for case in CASES],
)
def test_a_move_beside_a_kill_happens_in_the_end(rig: Rig, moment: str, victim: str, kill: str) -> None:
    source = owner(rig, 0)
    target = other(source)
    given = rig.nodes[source].plain_log().count("cell_given")
    with load(rig):
        topics(rig, target, "move", "0", target, "--no-wait")
        if moment == "waiting":
            rig.until(lambda: pid_of_cell(rig, target, 0) is not None or rig.owner(0) == target)
        elif moment == "given":
            rig.until(lambda: rig.nodes[source].plain_log().count("cell_given") > given or rig.owner(0) == target)
        KILLS[kill](rig, source if victim == "source" else target)
        rig.until(lambda: rig.owner(0) == target)
