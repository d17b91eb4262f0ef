"""Cells and gateways of a set are killed at random under a mixed load: what was acked is there once, in order, and no
job has two holders."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import is_soak
from tests.support.broker_process import ROOT

KILLS = 60 if is_soak(os.environ) else 4
PATIENCE_S = 1500 if is_soak(os.environ) else 280
FIGURES = re.compile(
    r"lost (\d+), doubled (\d+), disordered (\d+), double leases (\d+) of (\d+) acknowledged, (\d+) delivered,"
    r" (\d+) leases, (\d+) jobs done"
)


@pytest.mark.timeout(PATIENCE_S + 20)
def test_nothing_is_lost_doubled_or_leased_twice_while_cells_and_gateways_are_killed(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "loadtest.killed_cells", "--cells", "4", "--kills", str(KILLS), "--dir", str(tmp_path)],
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
    assert min(acknowledged, delivered, leases, done) > 5 * KILLS, ran.stdout
