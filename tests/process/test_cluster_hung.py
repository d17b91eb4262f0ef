"""One process of a node hangs, and the node lives: the process is killed and its cell served again, and the node can be
stopped."""

from __future__ import annotations

import os
import signal

import pytest

from tests.process import test_cluster
from tests.process.test_cluster import ClusterNode, Rig
from tests.process.test_cluster_orders import load

pytestmark = [pytest.mark.timeout(600)]

shared, rig = test_cluster.shared, test_cluster.rig


def stopped(rig: Rig, cell: int) -> tuple[ClusterNode, int]:
    """Stop the process of the cell. Returns its node, and its pid."""
    rig.until(lambda: rig.owner(cell) is not None)
    name = rig.owner(cell)
    assert name is not None
    node = rig.nodes[name]
    [pid] = [pid for pid, each in node.cells().items() if each == f"cell-{cell:02d}"]
    os.kill(pid, signal.SIGSTOP)
    return node, pid


def killed(node: ClusterNode, process: str, reason: str) -> bool:
    return any(
        "process_killed" in line and f"process={process}" in line and f"reason={reason}" in line
        for line in node.plain_log().splitlines()
    )


def test_a_cell_whose_process_hangs_is_served_again_and_no_acked_write_is_lost(rig: Rig) -> None:
    with load(rig) as writers:
        node, pid = stopped(rig, 0)
        rig.until(lambda: killed(node, "cell-00", "silent"))
        rig.until(lambda: pid not in node.processes())
        before = len(writers[0].acked)
        rig.until(lambda: len(writers[0].acked) > before)
    assert not any(killed(each, "cell-01", "silent") for each in rig.nodes.values())


def test_a_node_with_a_hung_process_of_a_cell_stops_and_the_other_one_has_all(rig: Rig) -> None:
    with load(rig):
        node, _ = stopped(rig, 0)
        assert node.stop() == 0
        assert killed(node, "cell-00", "silent") or killed(node, "cell-00", "not_ended")


def test_a_node_whose_relay_and_gateway_hang_stops_soon_after_a_second_signal(rig: Rig) -> None:
    node = rig.nodes["a"]
    node.wait_listening()
    cells, spares = node.cells(), node.spares()
    for pid in node.commands().keys() - cells.keys() - {*spares}:
        os.kill(pid, signal.SIGSTOP)
    node.signal(signal.SIGTERM)
    rig.until(lambda: "stopping " in node.plain_log())
    node.signal(signal.SIGTERM)
    assert node.wait() == 0
    assert killed(node, "relay", "not_ended")
    assert killed(node, "gateway-00", "not_ended")
