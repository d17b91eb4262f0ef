"""The handlers of the Kafka port, one file for each area."""
