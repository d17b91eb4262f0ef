"""Record batches of the Kafka protocol: pure codecs, and compression."""
