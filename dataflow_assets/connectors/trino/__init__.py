"""Trino: tables and queries polled; rows appended or merged by one statement per micro-batch."""

from dataflow_assets.connectors.trino.sink.sink import TrinoSink
from dataflow_assets.connectors.trino.source.source import TrinoSource

__all__ = ["TrinoSink", "TrinoSource"]
