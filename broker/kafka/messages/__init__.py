"""The declared messages, one file for each area. Kafka's protocol guide explains the fields."""
