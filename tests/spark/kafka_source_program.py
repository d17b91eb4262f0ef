"""A program: the same reads through Kafka's source and through ours, in one Spark session. Prints a line of
JSON for each: source, batches or streams, number, what it has found.

    python -m tests.spark.kafka_source_program JARS FOLDER READS

READS: JSON of {"sources": {name: {"format": …, "options": {…}}}, "batches": [options], "streams": [options]}.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRIES = 6
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


def rows(frame: DataFrame) -> list[list[Any]]:
    """All rows, with bytes as hexadecimal text and times as numbers."""
    chosen = (
        f.hex("key"),
        f.hex("value"),
        f.col("topic"),
        f.col("partition"),
        f.col("offset"),
        f.unix_micros("timestamp"),
        f.col("timestampType"),
        f.expr("transform(headers, h -> struct(h.key, hex(h.value)))"),
    )
    return sorted(
        [[*row[:7], [list(each) for each in row[7] or ()]] for row in frame.select(*chosen).collect()], key=_at
    )


def _at(row: list[Any]) -> tuple[str, int, int]:
    return row[2], row[3], row[4]


def batch(session: SparkSession, source: dict[str, Any], options: dict[str, str]) -> dict[str, Any]:
    frame = session.read.format(source["format"]).options(**source["options"], **options).load()
    fields = {field.name: field.dataType.simpleString() for field in frame.schema.fields if field.name in COLUMNS}
    return {"columns": fields, "rows": rows(frame)}


def stream(session: SparkSession, source: dict[str, Any], options: dict[str, str], folder: Path) -> dict[str, Any]:
    """Spark gives the process of a source in Python ten seconds to start, which a busy machine may exceed."""
    for attempt in range(TRIES):
        try:
            return _streamed(session, source, options, folder / str(attempt))
        except StreamingQueryException as error:
            if "Python worker failed to connect back" not in str(error) or attempt == TRIES - 1:
                raise
    raise AssertionError


def _streamed(session: SparkSession, source: dict[str, Any], options: dict[str, str], folder: Path) -> dict[str, Any]:
    frame = session.readStream.format(source["format"]).options(**source["options"], **options).load()
    found: dict[int, list[list[Any]]] = {}

    def keep(batch: DataFrame, number: int) -> None:
        found[number] = rows(batch)

    query = (
        frame.writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return {
        "rows": [found[number] for number in sorted(found)],
        "progress": [
            {
                "rows": each["numInputRows"],
                **{name: _offsets(each["sources"][0][name]) for name in ("startOffset", "endOffset", "latestOffset")},
            }
            for each in query.recentProgress
            if each["numInputRows"]
        ],
    }


def _offsets(given: Any) -> Any:
    """Offsets as Kafka's source has them: {topic: {partition: offset}}."""
    given = json.loads(given) if isinstance(given, str) else given
    return given and {
        topic: {at: each["seq"] - 1 if isinstance(each, dict) else each for at, each in partitions.items()}
        for topic, partitions in given.items()
    }


def main(jars: str, folder: str, given: str) -> None:
    from pyspark.sql import SparkSession

    from pipeline.session import settings

    reads = json.loads(given)
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.driver.memory", "1g")
    for name, value in (settings("local[2]") | {"spark.sql.warehouse.dir": f"{folder}/warehouse"}).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    for number, options in enumerate(reads["batches"]):
        for name, source in reads["sources"].items():
            tell(name, "batches", number, batch(session, source, options))
    for number, options in enumerate(reads["streams"]):
        for name, source in reads["sources"].items():
            tell(name, "streams", number, stream(session, source, options, Path(folder, f"{name}-{number}")))


def tell(source: str, what: str, number: int, found: dict[str, Any]) -> None:
    print(json.dumps([source, what, number, found]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
