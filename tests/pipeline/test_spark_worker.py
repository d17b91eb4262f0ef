"""What a task does to the Python process that Spark runs it in."""

from __future__ import annotations

import gc
import subprocess
import sys

from pipeline import spark_worker

#: Runs `freeze_imports` in a process whose main module has a name, as PySpark's daemon has for those that it forks.
_PROGRAM = """
import gc, sys, types
sys.modules["__main__"].__spec__ = types.SimpleNamespace(name=sys.argv[1])
from pipeline.spark_worker import freeze_imports
freeze_imports()
freeze_imports()
print(gc.get_freeze_count() > 1000)
"""


def frozen_in(main: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, main], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()


def test_the_imports_of_a_worker_are_not_collected_again() -> None:
    assert frozen_in("pyspark.daemon") == "True"


def test_other_processes_are_left_alone() -> None:
    assert frozen_in("some.program") == "False"
    before = gc.get_freeze_count()
    spark_worker.freeze_imports.__wrapped__()
    assert gc.get_freeze_count() == before
