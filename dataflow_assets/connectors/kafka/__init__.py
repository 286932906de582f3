"""Kafka: bounds are fixed from the broker first, then Spark reads exactly that span."""

from dataflow_assets.connectors.kafka.source import KafkaSource

__all__ = ["KafkaSource"]
