"""Programs in Python with releases of packages that the tests themselves cannot have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.kafka.java.programs import FETCH_S, alone, cache

COUNT_S = 1800
#: Rows, different seqs, first and last seq of each partition.
Counts = dict[int, tuple[int, int, int, int]]


def packages(name: str, requirements: Sequence[str]) -> Path:
    """A folder with those packages, which pip fetches once. `name`: of the folder in the cache; other requirements need
    another."""
    wanted = cache() / name
    with alone(cache()):
        if not wanted.is_dir():
            with tempfile.TemporaryDirectory(dir=cache()) as scratch:
                made = Path(scratch, "made")
                command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(made), *requirements]
                done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_S, check=False)
                assert done.returncode == 0, f"pip could not fetch {name}: {done.stdout}{done.stderr}"
                made.rename(wanted)
    return wanted


def counts(program: str, asked: object, found: Path, **environment: str) -> list[Counts]:
    """What a program prints that counts rows: a line of JSON for each table, with a list for each partition.

    It runs with the packages in the folder `found` and nothing of this project, and gets what it is asked as JSON.
    """
    with tempfile.TemporaryDirectory() as scratch:
        own = {"HOME": scratch, "SPARK_LOCAL_DIRS": scratch, "PYTHONPATH": str(found), "PATH": os.environ["PATH"]}
        done = subprocess.run(
            [sys.executable, "-c", program, json.dumps(asked)],
            cwd=scratch,
            env=own | environment,
            capture_output=True,
            text=True,
            timeout=COUNT_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    return [
        {at: (rows, different, low, high) for at, rows, different, low, high in json.loads(line)}
        for line in done.stdout.splitlines()
    ]
