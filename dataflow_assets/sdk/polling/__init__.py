"""Tables and queries that are read by polling: planned, followed and read, whatever the database.

A position is a pair of a change value and an order value; a first load goes by the order value up
to a pair that was fixed before. What a database answers about a table is in `sql_table`.
"""

from dataflow_assets.sdk.polling.session import PolledSession, PolledSqlSession
from dataflow_assets.sdk.polling.source import PolledSource

__all__ = ["PolledSession", "PolledSource", "PolledSqlSession"]
