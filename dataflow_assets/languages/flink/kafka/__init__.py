"""Kafka's ends of tables that are declared in SQL."""
