"""Keys and values of the topics of tables that are declared in SQL."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from dataflow_assets.connectors.kafka.values import MakeRecord, Outgoing, ValueReader, ValueWriter
from dataflow_assets.errors import RejectedRecord
from dataflow_assets.formats.message_format import MessageFormat, Schemas
from dataflow_assets.formats.registry_client import RegistryClient
from dataflow_assets.formats.value_schema import ValueSchema
from dataflow_assets.languages.sql.engine.bytes.avro_schemas import schema_of
from dataflow_assets.languages.sql.engine.bytes.layout import Layouts, Spelling
from dataflow_assets.languages.sql.engine.bytes.messages import SqlFormat
from dataflow_assets.languages.sql.engine.bytes.write import encoder
from dataflow_assets.languages.sql.engine.metadata import TIMESTAMP, headers_of
from dataflow_assets.records.record import parse


@dataclass(frozen=True)
class TableReader(ValueReader):
    """Reads keys and values in the formats of a table."""

    layouts: Layouts

    @override
    def message_format(self, schemas: Schemas | None) -> MessageFormat:
        return SqlFormat(self.layouts.value, self.layouts.key, schemas)


@dataclass(frozen=True)
class TableWriter(ValueWriter):
    """Writes rows as keys and values of a table's formats; a deleted row is a tombstone."""

    layouts: Layouts
    folded_keys: int = 0

    @override
    def value_schema(self, topic: str, registry: RegistryClient | None) -> ValueSchema | None:
        if registry is None:
            return None
        pairs = ((self.layouts.value, "value"), (self.layouts.key, "key"))
        numbers = [
            registry.register(one.subject_of(topic, what), "AVRO", schema_of(one))
            if one is not None and one.named
            else None
            for one, what in pairs
        ]
        return ValueSchema("avro", "", numbers[0], key_number=numbers[1])

    @override
    def records(
        self, topic: str, schema: ValueSchema | None, *, upserts: bool, old_keys: bool
    ) -> MakeRecord:
        key, metadata = self.layouts.key, self.layouts.metadata
        encode = encoder(self.layouts.value, schema.number if schema else None)
        key_number = schema.key_number if schema else None
        spelling: Spelling = "before" if old_keys else "Flink's"
        encode_key = encoder(key, key_number, spelling=spelling) if key else None
        names = list(zip(key.names, self.layouts.key_columns, strict=True)) if key else []
        times = [name for name, what in metadata if what == TIMESTAMP]
        headers = [name for name, what in metadata if what != TIMESTAMP]

        def record(value: bytes | None, deleted: bool) -> Outgoing:
            row = parse(value)
            key = encode_key({name: row[one] for name, one in names}) if encode_key else None
            if deleted:
                return Outgoing(topic, None, key)
            written = encode(row)
            if written is None and upserts:
                raise RejectedRecord("encode", "a null value of format raw would delete its key")
            beside = [one for name in headers for one in headers_of(row[name])]
            time = next((row[name] for name in times), None)
            return Outgoing(topic, written, key, beside, time)

        return record
