"""Tables that statements read and write: what connectors of databases share.

A polled source is a `SqlColumn`, a `SqlDialect` and the hooks of `PolledSqlSource`.
"""

from dataflow_assets.sdk.sql_table.dialect import Binds, SqlDialect
from dataflow_assets.sdk.sql_table.polled import PolledSqlTable
from dataflow_assets.sdk.sql_table.relation import SqlColumn, SqlRelation
from dataflow_assets.sdk.sql_table.source import PolledSqlSession, PolledSqlSource, Selection

__all__ = [
    "Binds",
    "PolledSqlSession",
    "PolledSqlSource",
    "PolledSqlTable",
    "Selection",
    "SqlColumn",
    "SqlDialect",
    "SqlRelation",
]
