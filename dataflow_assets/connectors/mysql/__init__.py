"""MySQL and MariaDB."""

from dataflow_assets.connectors.mysql.sink.sink import MysqlSink
from dataflow_assets.connectors.mysql.source.source import MysqlSource

__all__ = ["MysqlSink", "MysqlSource"]
