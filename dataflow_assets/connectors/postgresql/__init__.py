"""PostgreSQL: rows and checkpoint in one transaction per slice; tables polled, or followed."""

from dataflow_assets.connectors.postgresql.cdc.source import PostgresqlCdcSource
from dataflow_assets.connectors.postgresql.sink.sink import PostgresqlSink
from dataflow_assets.connectors.postgresql.source.source import PostgresqlSource

__all__ = ["PostgresqlCdcSource", "PostgresqlSink", "PostgresqlSource"]
