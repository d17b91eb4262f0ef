"""The data pipeline: a Spark data source for topics, and a job that exports them. Manual: docs/guides/spark.md."""
