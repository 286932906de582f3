"""ClickHouse, over its HTTP interface."""

from dataflow_assets.connectors.clickhouse.sink import ClickhouseSink

__all__ = ["ClickhouseSink"]
