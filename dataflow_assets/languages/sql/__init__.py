"""Flink's SQL: tables over topics and databases, views and INSERTs."""
