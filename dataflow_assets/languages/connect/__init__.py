"""Sink connectors of Kafka Connect: Debezium's and Confluent's JDBC sink, and Iceberg's."""
