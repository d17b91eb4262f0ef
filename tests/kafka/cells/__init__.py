"""The Kafka port of a set of cells."""
