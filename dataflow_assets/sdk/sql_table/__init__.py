"""Tables that statements read and write: what connectors of databases share.

A table that is polled is described by a `SqlColumn` for each column and a `SqlDialect`.
"""

from dataflow_assets.sdk.sql_table.dialect import Binds, SqlDialect
from dataflow_assets.sdk.sql_table.polled import PolledSqlTable
from dataflow_assets.sdk.sql_table.relation import Selection, SqlColumn, SqlRelation

__all__ = ["Binds", "PolledSqlTable", "Selection", "SqlColumn", "SqlDialect", "SqlRelation"]
