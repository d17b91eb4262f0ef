"""Every router workload, stopped at every call to the disk, in every way, and with every call failing.

The short form takes a sample, another one in every run: pytest's random seed decides (see its header).
"""

from __future__ import annotations

import random

import pytest

from tests.crash.router_workloads import WORKLOADS
from tests.support.crash_sweep import Sweep
from tests.support.route_run import DRIVE


def _sweep(name: str) -> Sweep:
    return Sweep(DRIVE, WORKLOADS[name], random.getrandbits(32))


@pytest.mark.parametrize("name", WORKLOADS)
def test_promises_survive_a_crash_at_some_calls(name: str) -> None:
    assert _sweep(name).some_crashes() == []


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", WORKLOADS)
def test_promises_survive_a_crash_at_any_call(name: str) -> None:
    assert _sweep(name).all_crashes() == []


@pytest.mark.parametrize("name", WORKLOADS)
def test_promises_survive_an_error_at_some_calls(name: str) -> None:
    assert _sweep(name).some_errors() == []


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", WORKLOADS)
def test_promises_survive_an_error_at_any_call(name: str) -> None:
    assert _sweep(name).all_errors() == []
