"""The declared messages, a file an area. What a field means is said in Kafka's own protocol guide."""
