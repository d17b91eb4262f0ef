"""DuckDB with its own readers of Delta and Iceberg tables, in an environment of its own: the newest release of the
packages with its extensions is one for an earlier DuckDB than the tests have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.kafka.java.programs import FETCH_S, alone, cache
from tests.support.table_connectors import Counts

DUCKDB = "1.5.5"
#: Without the network: DuckDB itself would fetch extensions from its own server.
PACKAGES = (
    "duckdb",
    "duckdb-extensions",
    *(f"duckdb-extension-{name}" for name in ("avro", "delta", "httpfs", "iceberg")),
)
COUNT_S = 600

#: Runs in that environment, which has nothing of this project.
_COUNT = """
import json, sys
import duckdb
from duckdb_extensions import import_extension

kind, path, versions, conditions = json.loads(sys.argv[1])
for name in ("avro", "httpfs", kind):
    import_extension(name)
connection = duckdb.connect()
connection.sql(f"LOAD {kind}")
option = "version" if kind == "delta" else "snapshot_from_id"
for version in versions:
    chosen = "" if version is None else f", {option} := {int(version)}"
    for condition in conditions:
        rows = connection.sql(
            f"SELECT partition, count(*), count(DISTINCT seq), min(seq), max(seq) FROM {kind}_scan('{path}'{chosen}) "
            f"WHERE {condition} GROUP BY partition"
        )
        print(json.dumps(rows.fetchall()))
"""


def environment() -> Path:
    """The folder of the environment, which is made once."""
    wanted = cache() / f"duckdb-{DUCKDB}"
    with alone(cache()):
        if not wanted.is_dir():
            with tempfile.TemporaryDirectory(dir=cache()) as scratch:
                made = Path(scratch, "made")
                packages = [f"{name}=={DUCKDB}" for name in PACKAGES]
                command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(made), *packages]
                done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_S, check=False)
                assert done.returncode == 0, f"pip could not fetch DuckDB {DUCKDB}: {done.stdout}{done.stderr}"
                made.rename(wanted)
    return wanted


def count(
    kind: str, path: str, versions: Sequence[str | None] = (None,), conditions: Sequence[str] = ("true",)
) -> list[Counts]:
    """What `delta_scan` or `iceberg_scan` counts in each version of the table at `path`, under each condition: the
    folder of a Delta table, or the current metadata of an Iceberg table. None: the newest version."""
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(
            [sys.executable, "-c", _COUNT, json.dumps([kind, path, versions, conditions])],
            cwd=scratch,
            # Extensions are copied to the home directory.
            env={"HOME": scratch, "PATH": os.environ["PATH"], "PYTHONPATH": str(environment())},
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
