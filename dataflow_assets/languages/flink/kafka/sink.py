"""The Kafka sink of tables that are declared in SQL: keys and values are made of rows."""

from __future__ import annotations

from pydantic import InstanceOf
from typing_extensions import override

from dataflow_assets.connectors.kafka.sink.sink import KafkaSink
from dataflow_assets.contracts import Slice, Ticket, Writer
from dataflow_assets.formats.value_schema import ValueSchema
from dataflow_assets.languages.flink.engine.bytes.avro_schemas import schema_of
from dataflow_assets.languages.flink.engine.bytes.layout import Layouts, Spelling


class SqlKafkaSink(KafkaSink):
    """Writes rows as keys and values of the table's formats; a deleted row is a tombstone.

    Made by the manifest language `sql`; DataFlow manifests do not name it.
    """

    layouts: InstanceOf[Layouts]
    """What keys and values are."""
    folded_keys: int = 0
    """Among as many keys only the last change of each is written; 0: every change is."""

    @override
    def value_schema(self, topic: str) -> ValueSchema | None:
        """The numbers of the schemas with which keys and values of a registry begin."""
        if self.schema_registry is None:
            return None
        client = self.schema_registry.client()
        pairs = ((self.layouts.value, "value"), (self.layouts.key, "key"))
        numbers = [
            client.register(one.subject_of(topic, what), "AVRO", schema_of(one))
            if one is not None and one.named
            else None
            for one, what in pairs
        ]
        return ValueSchema("avro", "", numbers[0], key_number=numbers[1])

    @override
    def writer(self, ticket: Ticket, piece: Slice) -> Writer:
        from dataflow_assets.connectors.kafka.sink.key_spelling import FLINK, keys_of
        from dataflow_assets.languages.flink.kafka.writer import SqlWriter, Written

        spelling: Spelling = "Flink's" if keys_of(ticket.schema) == FLINK else "before"
        return SqlWriter(self, Written(self.layouts, spelling, self.folded_keys), ticket, piece)
