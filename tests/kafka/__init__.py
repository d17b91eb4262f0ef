"""The Kafka port, end to end: stock clients, and bare sockets where no client would do such a thing."""
