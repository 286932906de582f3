"""Kafka: bounds are fixed from the broker first, then Spark reads exactly that span.

Written by transactions: the records of a slice and the checkpoint of its partition are one.
"""

from dataflow_assets.connectors.kafka.sink.sink import KafkaSink
from dataflow_assets.connectors.kafka.source.source import KafkaSource

__all__ = ["KafkaSink", "KafkaSource"]
