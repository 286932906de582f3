"""Source connectors of Kafka Connect, without Kafka."""

from dataflow_assets.connectors.kafka_connect.source.source import KafkaConnectSource

__all__ = ["KafkaConnectSource"]
