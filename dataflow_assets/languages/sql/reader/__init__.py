"""Flink's SQL: tables on Kafka and in databases, and the INSERTs between them."""
