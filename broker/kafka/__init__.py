"""The Kafka port: the wire protocol of Kafka clients, as another face of the same topics.

Source: docs/guides/kafka.md.
"""
