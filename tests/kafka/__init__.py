"""The Kafka port, end to end: with unmodified clients, and with plain sockets for what no client would do."""
