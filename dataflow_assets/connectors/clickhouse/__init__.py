"""ClickHouse, over its HTTP interface."""

from dataflow_assets.connectors.clickhouse.sink.sink import ClickhouseSink
from dataflow_assets.connectors.clickhouse.source.source import ClickhouseSource

__all__ = ["ClickhouseSink", "ClickhouseSource"]
