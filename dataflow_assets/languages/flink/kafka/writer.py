"""Rows of tables that are declared in SQL -> records: their keys, values and tombstones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.kafka.options import KafkaSinkOptions
from dataflow_assets.connectors.kafka.producer import Headers, Outgoing
from dataflow_assets.connectors.kafka.sink.routing import Routing, RulesOf, Sorted
from dataflow_assets.connectors.kafka.sink.writer import KafkaWriter
from dataflow_assets.contracts import Sent, Slice, Ticket
from dataflow_assets.errors import RejectedRecord
from dataflow_assets.formats.value_schema import ValueSchema
from dataflow_assets.languages.flink.engine.bytes.layout import Layouts, Spelling
from dataflow_assets.languages.flink.engine.bytes.write import encoder
from dataflow_assets.languages.flink.engine.metadata import TIMESTAMP, headers_of
from dataflow_assets.records.record import parse


@dataclass(frozen=True)
class Written:
    """What is made of rows."""

    layouts: Layouts
    spelling: Spelling
    """Of keys; values are always Flink's."""
    folded_keys: int = 0
    """Among as many keys only the last change of each is written; 0: every change is."""


class SqlWriter(KafkaWriter):
    """One slice of rows in one transaction."""

    def __init__(
        self, sink: KafkaSinkOptions, written: Written, ticket: Ticket, piece: Slice
    ) -> None:
        self._written = written
        super().__init__(sink, ticket, piece)

    @override
    def routed(self, values: ValueSchema | None) -> Routing:
        return SqlRouting(self._sink, self._rules, self._written, values)


class SqlRouting(Routing):
    """Rows as bodies -> keys and values."""

    def __init__(
        self,
        sink: KafkaSinkOptions,
        rules: RulesOf,
        written: Written,
        schemas: ValueSchema | None,
    ) -> None:
        super().__init__(sink, rules)
        layouts = written.layouts
        self._most_keys = written.folded_keys
        self._value = encoder(layouts.value, schemas.number if schemas else None)
        key_number = schemas.key_number if schemas else None
        self._key_of = (
            encoder(layouts.key, key_number, spelling=written.spelling) if layouts.key else None
        )
        names = layouts.key.names if layouts.key else ()
        self._key_names = list(zip(names, layouts.key_columns, strict=True))
        self._times = [name for name, key in layouts.metadata if key == TIMESTAMP]
        self._headers = [name for name, key in layouts.metadata if key != TIMESTAMP]

    @override
    def sort(self, rows: pa.RecordBatch, sent: Mapping[int, Sent]) -> Sorted:
        found = super().sort(rows, sent)
        if self._most_keys:
            found.records = list(last_changes(found.records, self._most_keys))
        return found

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
        time = next((row[name] for name in self._times), None)
        written = [one for name in self._headers for one in headers_of(row[name])]
        return Outgoing(self._sink.topic, found, made, written, time)


def last_changes(records: Iterable[Outgoing], most: int) -> Iterator[Outgoing]:
    """Of the changes of a key the last one, among `most` keys after the other."""
    waiting: dict[bytes | None, Outgoing] = {}
    for one in records:
        if one.key not in waiting and len(waiting) == most:
            yield from waiting.values()
            waiting.clear()
        waiting[one.key] = one
    yield from waiting.values()
