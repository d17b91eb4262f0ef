"""The data source `topics`: the entry points for Spark, and the classes behind them.

Source: docs/guides/spark.md#reading.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
)
from pyspark.sql.types import StructType

from pipeline import options
from pipeline.source.batch import BatchReader
from pipeline.source.pushing import PushingReader, is_pushing
from pipeline.source.stream import StreamReader
from pipeline.source.writer import BatchWriter, StreamWriter


class TopicsDataSource(DataSource):
    """`spark.read.format("topics")`; docs/guides/spark.md lists the options."""

    @classmethod
    def name(cls) -> str:
        return "topics"

    def schema(self) -> str:
        return options.parse(self.options).shape.ddl()

    def reader(self, schema: StructType) -> DataSourceReader:
        kind = PushingReader if is_pushing() else BatchReader
        return kind(options.parse(self.options).with_schema(schema.names))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(options.parse(self.options).with_schema(schema.names))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return BatchWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return StreamWriter(self.options, schema, overwrite)
