"""Source connectors of Kafka Connect, without Kafka."""
