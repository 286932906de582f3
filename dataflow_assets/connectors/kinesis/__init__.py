"""Streams of Amazon Kinesis Data Streams."""

from dataflow_assets.connectors.kinesis.source.source import KinesisSource

__all__ = ["KinesisSource"]
