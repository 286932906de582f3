"""The Kafka sink of tables that are declared in SQL: keys and values are made of rows."""

from __future__ import annotations

import pyarrow as pa
from pydantic import InstanceOf
from typing_extensions import override

from dataflow_assets.connectors.kafka.producer import Headers, Outgoing
from dataflow_assets.connectors.kafka.sink.routing import Routing, RulesOf
from dataflow_assets.connectors.kafka.sink.sink import KafkaSink
from dataflow_assets.connectors.kafka.sink.writer import KafkaWriter
from dataflow_assets.contracts import Slice, Ticket, Writer
from dataflow_assets.errors import RejectedRecord
from dataflow_assets.formats.value_schema import Encode
from dataflow_assets.records.record import parse
from dataflow_assets.sql.bytes.layout import Layout
from dataflow_assets.sql.bytes.write import encoder


class SqlKafkaSink(KafkaSink):
    """Writes rows as keys and values of the table's formats; a deleted row is a tombstone.

    Made by the manifest language `sql`; DataFlow manifests do not name it.
    """

    value: InstanceOf[Layout]
    """What values are."""
    key: InstanceOf[Layout] | None = None
    """What keys are; None: records have none."""
    key_columns: tuple[str, ...] = ()
    """The columns of the row that make the key, in the order of its layout."""

    @override
    def writer(self, ticket: Ticket, piece: Slice) -> Writer:
        return SqlWriter(self, ticket, piece)


class SqlWriter(KafkaWriter):
    """One slice of rows in one transaction."""

    @override
    def routed(self, encode: Encode | None) -> Routing:
        assert isinstance(self._sink, SqlKafkaSink)  # noqa: S101 - it was made by one
        return SqlRouting(self._sink, self._rules)


class SqlRouting(Routing):
    """Rows as bodies -> keys and values."""

    def __init__(self, sink: SqlKafkaSink, rules: RulesOf) -> None:
        super().__init__(sink, rules)
        self._value = encoder(sink.value)
        self._key_of = encoder(sink.key) if sink.key else None
        names = sink.key.names if sink.key else ()
        self._key_names = list(zip(names, sink.key_columns, strict=True))

    @override
    def plain(self, rows: pa.RecordBatch) -> bool:
        return False

    @override
    def _addressed(
        self, value: bytes | None, key: bytes | None, headers: Headers, *, deleted: bool
    ) -> Outgoing:
        row = parse(value)
        made = None
        if self._key_of is not None:
            made = self._key_of({name: row[one] for name, one in self._key_names})
        if deleted:
            return Outgoing(self._sink.topic, None, made)
        found = self._value(row)
        if found is None and self._sink.upsert_mode:
            raise RejectedRecord("encode", "a null value of format raw would delete its key")
        return Outgoing(self._sink.topic, found, made)
