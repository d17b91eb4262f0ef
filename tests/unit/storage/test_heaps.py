"""Freed memory that glibc keeps: counted in page faults, in a separate process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

#: Frees and allocates 10 MiB again and again in buffers like those of reads. Prints the page faults of a round.
_PROGRAM = """
import resource, sys, tempfile
from storage import BlockingEngine, Options
from storage.platform import bound_heaps

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

bounds = sys.argv[1]
if bounds == "other":
    bound_heaps(free_bytes=1 << 20)
if bounds != "none":
    with tempfile.TemporaryDirectory() as folder, BlockingEngine.open(folder, Options(wal_shards=1)):
        pass
for _ in range(20):
    before = faults()
    held = [bytes(1 << 19) for _ in range(20)]
    del held
print(faults() - before)
"""
#: In a round: at least a fifth of its pages are new, or almost none.
_MANY = (2 << 20) // os.sysconf("SC_PAGE_SIZE")
_FEW = _MANY // 8


def _faults(bounds: str, **environment: str) -> int:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    command = [sys.executable, "-c", _PROGRAM, bounds]
    root = str(Path(__file__).parents[3])
    done = subprocess.run(
        command, env={**kept, "PYTHONPATH": root, **environment}, check=True, capture_output=True, text=True
    )
    return int(done.stdout)


def _faults_many(bounds: str, **environment: str) -> bool:
    """Whether a round faults its pages again in one of several processes. In some, a block that is in use lies above
    the freed ones, and glibc cannot give them back."""
    return any(_faults(bounds, **environment) > _MANY for _ in range(5))


def test_an_engine_keeps_the_pages_of_its_buffers() -> None:
    assert _faults("engine") < _FEW


def test_without_the_setting_each_round_faults_its_pages_again() -> None:
    assert _faults_many("none")


def test_the_first_bounds_of_a_process_count() -> None:
    assert _faults_many("other")


@pytest.mark.parametrize(
    ("name", "value"),
    [("MALLOC_TRIM_THRESHOLD_", "1048576"), ("GLIBC_TUNABLES", "glibc.malloc.trim_threshold=1048576")],
)
def test_malloc_variables_of_the_environment_stay(name: str, value: str) -> None:
    assert _faults_many("engine", **{name: value})
