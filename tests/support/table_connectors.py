"""Spark with the connectors of Delta and Iceberg, in an environment of its own: no release of them fits the Spark that
the tests have."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tests.support.jars import jars
from tests.support.other_packages import Counts, counts, packages

SPARK = "4.1.4"
JARS = (
    "io.delta:delta-spark_4.1_2.13:4.4.0",
    "io.delta:delta-storage:4.4.0",
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
)
#: Runs in that environment, which has nothing of this project.
_COUNT = """
import json, sys
from pyspark.sql import SparkSession, functions as f

kind, path, versions, conditions, catalog, jars = json.loads(sys.argv[1])
session = (
    SparkSession.builder.master("local[2]")
    .config("spark.jars", jars)
    .config("spark.log.level", "ERROR")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.databricks.delta.snapshotPartitions", "2")
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .config("spark.sql.catalog.read", "org.apache.iceberg.spark.SparkCatalog")
    .config("spark.sql.catalog.read.type", "rest")
    .config("spark.sql.catalog.read.uri", catalog)
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


def count(
    kind: str,
    path: str,
    java_home: str,
    versions: Sequence[str | None] = (None,),
    conditions: Sequence[str] = ("true",),
    catalog: str = "",
) -> list[Counts]:
    """What the connector for `kind` counts in each version of the table at `path`, under each condition: the folder of
    a Delta table, or the current metadata of an Iceberg table, or its name in `read`, the REST catalog at the URL
    `catalog`. None: the newest version."""
    return counts(
        _COUNT,
        [kind, path, versions, conditions, catalog, jars(f"tables-of-spark-{SPARK}", JARS)],
        packages(f"spark-{SPARK}", [f"pyspark=={SPARK}"]),
        JAVA_HOME=java_home,
        PYSPARK_PYTHON=sys.executable,
        SPARK_LOCAL_IP="127.0.0.1",
    )
