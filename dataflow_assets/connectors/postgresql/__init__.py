"""PostgreSQL: rows and checkpoint in one transaction per slice; tables and queries polled."""

from dataflow_assets.connectors.postgresql.sink.sink import PostgresqlSink
from dataflow_assets.connectors.postgresql.source.source import PostgresqlSource

__all__ = ["PostgresqlSink", "PostgresqlSource"]
