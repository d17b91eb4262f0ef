"""Every workload of producers, states and offsets, stopped at every call to the disk, in every way, and with every
call failing.

See `crash_sweep`.
"""

from __future__ import annotations

import pytest

from tests.crash.kept_workloads import WORKLOADS
from tests.support import kept_run
from tests.support.crash_sweep import Sweep

SWEEP = Sweep(WORKLOADS, kept_run, points=8, errors=4)


@pytest.mark.parametrize("name", WORKLOADS)
def test_promises_survive_a_crash_at_some_calls(name: str) -> None:
    assert SWEEP.some_crashes(name) == []


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", WORKLOADS)
def test_promises_survive_a_crash_at_any_call(name: str) -> None:
    assert SWEEP.all_crashes(name) == []


@pytest.mark.parametrize("name", WORKLOADS)
def test_promises_survive_an_error_at_some_calls(name: str) -> None:
    assert SWEEP.some_errors(name) == []


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", WORKLOADS)
def test_promises_survive_an_error_at_any_call(name: str) -> None:
    assert SWEEP.all_errors(name) == []
