"""Spark with the connectors of Delta and Iceberg, in an environment of its own: no release of them fits the Spark that
the tests have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.kafka.java.programs import FETCH_S, alone, cache
from tests.support.jars import jars

SPARK = "4.1.4"
JARS = (
    "io.delta:delta-spark_4.1_2.13:4.4.0",
    "io.delta:delta-storage:4.4.0",
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
)
COUNT_S = 1800
#: Rows, different seqs, first and last seq of each partition.
Counts = dict[int, tuple[int, int, int, int]]

#: Runs in that environment, which has nothing of this project.
_COUNT = """
import json, sys
from pyspark.sql import SparkSession, functions as f

kind, path, versions, conditions, jars = json.loads(sys.argv[1])
session = (
    SparkSession.builder.master("local[2]")
    .config("spark.jars", jars)
    .config("spark.log.level", "ERROR")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.databricks.delta.snapshotPartitions", "2")
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .getOrCreate()
)
seq = f.col("seq")
counts = (f.count(seq), f.countDistinct(seq), f.min(seq), f.max(seq))
for version in versions:
    rows = session.read.format(kind).options(**{} if version is None else {"versionAsOf": version}).load(path)
    for condition in conditions:
        found = rows.where(condition).groupBy("partition").agg(*counts)
        print(json.dumps([[*row] for row in found.collect()]))
"""


def environment() -> Path:
    """The folder of the environment, which is made once."""
    wanted = cache() / f"spark-{SPARK}"
    with alone(cache()):
        if not wanted.is_dir():
            with tempfile.TemporaryDirectory(dir=cache()) as scratch:
                made = Path(scratch, "made")
                command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(made), f"pyspark=={SPARK}"]
                done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_S, check=False)
                assert done.returncode == 0, f"pip could not fetch Spark {SPARK}: {done.stdout}{done.stderr}"
                made.rename(wanted)
    return wanted


def count(
    kind: str,
    path: str,
    java_home: str,
    versions: Sequence[str | None] = (None,),
    conditions: Sequence[str] = ("true",),
) -> list[Counts]:
    """What the connector for `kind` counts in each version of the table at `path`, under each condition: the folder of
    a Delta table, or the current metadata of an Iceberg table. None: the newest version."""
    asked = json.dumps([kind, path, versions, conditions, jars(f"tables-of-spark-{SPARK}", JARS)])
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(
            [sys.executable, "-c", _COUNT, asked],
            cwd=scratch,
            env={
                "HOME": str(Path.home()),
                "PATH": os.environ["PATH"],
                "JAVA_HOME": java_home,
                "PYTHONPATH": str(environment()),
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_LOCAL_DIRS": scratch,
            },
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
