"""The data pipeline: a Spark data source for topics, and a job that exports them. docs/pipeline.md is its manual."""
