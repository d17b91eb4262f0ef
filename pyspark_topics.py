"""Found by Spark by its name: with this module installed, `spark.read.format("topics")` needs no register call."""

from pipeline.source.datasource import TopicsDataSource as DefaultSource

__all__ = ["DefaultSource"]
