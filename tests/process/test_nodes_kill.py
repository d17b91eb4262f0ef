"""Nodes of a cluster are killed, paused, stopped and cut off from their store at random under a mixed load: what was
acked is there once, in order, and no job has two holders."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from loadtest.killed_nodes import KINDS
from tests.conftest import is_soak
from tests.support.broker_process import ROOT

SOAK = is_soak(os.environ)
ROUNDS = 200 if SOAK else 2
NODES, CELLS = (3, 6) if SOAK else (2, 2)
PATIENCE_S = 4 * 3600 if SOAK else 560
#: In the slow tier, those with the most moments at which something can go wrong. In the soak tier, each has its run.
FAULTS = [(kind,) for kind in KINDS] if SOAK else [("kill", "pause", "losses")]
FIGURES = re.compile(
    r"lost (\d+), doubled (\d+), disordered (\d+), double leases (\d+) of (\d+) acknowledged, (\d+) delivered,"
    r" (\d+) leases, (\d+) jobs done"
)


@pytest.mark.timeout(PATIENCE_S + 20)
@pytest.mark.parametrize("faults", FAULTS, ids="-".join)
def test_nothing_is_lost_doubled_or_leased_twice_whatever_happens_to_nodes(faults: tuple[str, ...]) -> None:
    command = ["--nodes", NODES, "--cells", CELLS, "--rounds", ROUNDS, "--faults", *faults]
    # A short path: it has unix sockets.
    with tempfile.TemporaryDirectory(prefix="tn") as folder:
        ran = subprocess.run(
            [sys.executable, "-m", "loadtest.killed_nodes", *map(str, command), "--dir", str(Path(folder))],
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if not name.startswith("TOPICS_")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    found = FIGURES.search(ran.stdout)
    assert ran.returncode == 0, ran.stdout
    assert found is not None, ran.stdout
    lost, doubled, disordered, double_leases, acknowledged, delivered, leases, done = map(int, found.groups())
    assert (lost, doubled, disordered, double_leases) == (0, 0, 0, 0)
    assert min(acknowledged, delivered, leases, done) > 5 * ROUNDS, ran.stdout
