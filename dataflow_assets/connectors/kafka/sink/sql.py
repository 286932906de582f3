"""The Kafka sink of tables that are declared in SQL: keys and values are made of rows."""

from __future__ import annotations

from pydantic import InstanceOf
from typing_extensions import override

from dataflow_assets.connectors.kafka.sink.sink import KafkaSink
from dataflow_assets.contracts import Slice, Ticket, Writer
from dataflow_assets.sql.bytes.layout import Layouts


class SqlKafkaSink(KafkaSink):
    """Writes rows as keys and values of the table's formats; a deleted row is a tombstone.

    Made by the manifest language `sql`; DataFlow manifests do not name it.
    """

    layouts: InstanceOf[Layouts]
    """What keys and values are."""

    @override
    def writer(self, ticket: Ticket, piece: Slice) -> Writer:
        from dataflow_assets.connectors.kafka.sink.sql_writer import SqlWriter

        return SqlWriter(self, self.layouts, ticket, piece)
