"""What a REST Proxy of Kafka offers, over the same topics: formats, instances of consumers, their groups."""
