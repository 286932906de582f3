"""PostgreSQL: rows and checkpoint in one transaction per slice."""

from dataflow_assets.connectors.postgresql.sink import PostgresqlSink

__all__ = ["PostgresqlSink"]
