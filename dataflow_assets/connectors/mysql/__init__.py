"""MySQL and MariaDB."""

from dataflow_assets.connectors.mysql.sink.sink import MysqlSink

__all__ = ["MysqlSink"]
