"""DuckDB with its own readers of Delta and Iceberg tables, in an environment of its own: the newest release of the
packages with its extensions is one for an earlier DuckDB than the tests have."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.other_packages import Counts, counts, packages

DUCKDB = "1.5.5"
#: Without the network: DuckDB itself would fetch extensions from its own server.
PACKAGES = (
    "duckdb",
    "duckdb-extensions",
    *(f"duckdb-extension-{name}" for name in ("avro", "delta", "httpfs", "iceberg")),
)

#: Runs in that environment, which has nothing of this project.
_COUNT = """
import json, sys
import duckdb
from duckdb_extensions import import_extension

kind, path, versions, conditions = json.loads(sys.argv[1])
for name in ("avro", "httpfs", kind):
    import_extension(name)
connection = duckdb.connect()
connection.sql("SET enable_progress_bar = false")  # it goes to stdout
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


def count(
    kind: str, path: str, versions: Sequence[str | None] = (None,), conditions: Sequence[str] = ("true",)
) -> list[Counts]:
    """What `delta_scan` or `iceberg_scan` counts in each version of the table at `path`, under each condition: the
    folder of a Delta table, or the current metadata of an Iceberg table. None: the newest version."""
    requirements = [f"{name}=={DUCKDB}" for name in PACKAGES]
    # Extensions are copied to the home directory, which is a scratch one.
    return counts(_COUNT, [kind, path, versions, conditions], packages(f"duckdb-{DUCKDB}", requirements))
