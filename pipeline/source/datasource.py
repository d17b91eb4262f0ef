"""The data source `topics`: the entry points for Spark, and the classes behind them.

Source: docs/guides/spark.md#reading.
"""

from __future__ import annotations

import re

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
)
from pyspark.sql.types import StructField, StructType

from pipeline import options
from pipeline.source.batch import BatchReader
from pipeline.source.pushing import PushingReader, is_pushing
from pipeline.source.stream import StreamReader
from pipeline.source.writer import BatchWriter, StreamWriter

#: In a type as JSON: columns, members or elements are never null.
_NEVER_NULL = re.compile(r'"(nullable|containsNull|valueContainsNull)":false')


class TopicsDataSource(DataSource):
    """`spark.read.format("topics")`; docs/guides/spark.md lists the options."""

    @classmethod
    def name(cls) -> str:
        return "topics"

    def schema(self) -> str:
        return options.parse(self.options).shape.ddl()

    def reader(self, schema: StructType) -> DataSourceReader:
        wanted = self._options(schema)
        return PushingReader(wanted) if wanted.push_filters and is_pushing() else BatchReader(wanted)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(self._options(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return BatchWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return StreamWriter(self.options, schema, overwrite)

    def _options(self, schema: StructType) -> options.ReadOptions:
        """The options with the schema that Spark expects: that of the query, or else `schema()`."""
        return options.parse(self.options).with_schema([(each.name, type_of(each)) for each in schema.fields])


def type_of(field: StructField) -> str:
    """The type of a column in Spark's DDL. Spark fails tasks whose columns may be null if it expects none."""
    return field.dataType.simpleString() + (" NOT NULL" if _NEVER_NULL.search(field.json()) else "")
