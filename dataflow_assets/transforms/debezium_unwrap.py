"""debeziumUnwrap: the row out of a Debezium change event."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import field_validator
from typing_extensions import override

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.records.change_event import UNAVAILABLE, change_event, key_row, placeholders
from dataflow_assets.records.connect_times import Convert
from dataflow_assets.records.connect_types import type_by_name
from dataflow_assets.records.record import NotJson, Record
from dataflow_assets.records.step import Apply, Context, Example, Step
from dataflow_assets.spec import Addition

_INSERT = '{"payload":{"op":"c","before":null,"after":{"id":7,"n":"x"}}}'
_SOURCE = '{"payload":{"op":"u","after":{"id":7},"source":{"db":"shop","lsn":9}}}'
_DELETE = '{"payload":{"op":"d","before":{"id":7},"after":null}}'
_KEY = '{"schema":{"type":"struct"},"payload":{"id":7}}'
_DELETED = {"operation": "delete", "id": 7}
_FIELDS = (
    '{"field":"amount","type":"struct","name":"io.debezium.data.VariableScaleDecimal"},'
    '{"field":"at","type":"int64","name":"io.debezium.time.MicroTimestamp"},'
    '{"field":"day","type":"int32","name":"io.debezium.time.Date"}'
)
_TYPED = (
    f'{{"schema":{{"type":"struct","fields":[{{"field":"after","type":"struct","fields":[{_FIELDS}]'
    '}]},"payload":{"op":"c","after":{"amount":{"scale":3,"value":"AeJA"},'
    '"at":1667304001123456,"day":19297}}}'
)


@dataclass(frozen=True)
class _Operation:
    """The name of an operation, the place of its row, and the fields that are absent from it."""

    name: str
    side: str
    fields: Mapping[str, str]
    absent: tuple[Any, ...]
    """What stands for a value that the event does not have."""


class DebeziumUnwrap(Step):
    """Replaces a Debezium change event by its row, and says in the metadata what happened to it.

    | `op` | the body becomes | `metadata.operation` |
    |---|---|---|
    | `c` | `after` | `insert` |
    | `r` (snapshot) | `after` | `snapshotOperation` |
    | `u` | `after` | `update` |
    | `d` | `before` | `delete` |

    Any other operation is rejected, and so is an event without the object it needs; a delete
    without the row before takes the key of the message. The row's `id`, where it has one, becomes
    `metadata.id`. The event is under `payload`, or is the body itself (Kafka Connect with schemas
    disabled): an object with `op`, and with `before` or `after` that are objects, null, or texts of
    documents (MongoDB). Other objects pass unchanged. Tombstones are dropped.

    Dates, times and decimals are what the schema says, beside the payload or of Avro: days since
    1970 become a date, base64 a number. Without one, `fieldTypes` names the types.
    A value that an update has left alone, for which Debezium sends a placeholder, is left out, and
    stays what it was in the target; `metadata.unavailable` names the fields.
    """

    type: ClassVar[str] = "debeziumUnwrap"
    makes_deletes: ClassVar[bool] = True
    infer_delete_from_tombstone: bool = False
    """A tombstone becomes a delete; its row is the key of the message, which must be a JSON object
    or hold one as `payload`. Without such a key the tombstone is rejected."""
    include_source_in_metadata: bool = False
    """Every key `k` of the event's `source` becomes `metadata.source_k`."""
    snapshot_operation: Literal["insert", "update"] = "insert"
    """What a row of the snapshot (`op` is `r`) counts as."""
    add_operation_fields: bool = False
    """Adds `__op` and `__deleted` ("true" or "false") to the row."""
    add_source_fields: tuple[str, ...] = ()
    """Keys of the event's `source` to add to the row, each as `source_<key>`."""
    field_types: Annotated[Mapping[str, str], Addition()] = {}
    """Types of fields of the row, by their names: for messages without a schema, and in place of
    what a schema says. `Date` (days), `Time`, `MicroTime`, `NanoTime` (since midnight, in milli-,
    micro- and nanoseconds), `Timestamp`, `MicroTimestamp`, `NanoTimestamp` (since 1970, likewise),
    `IsoDate`, `IsoTime`, `MicroDuration`, `NanoDuration`, `Decimal(n)` (base64, with n decimal
    places), `VariableScaleDecimal`, `Bits(n)`, `Json` (a text that is JSON), or `text`: as it is.
    """
    unavailable_value_placeholder: Annotated[str, Addition()] = "__debezium_unavailable_value"
    """The connector's `unavailable.value.placeholder`; empty: no value is a placeholder."""

    examples: ClassVar[tuple[Example, ...]] = (
        Example(
            "an insert",
            {},
            _INSERT,
            ('{"id":7,"n":"x"}',),
            metadata={"topic": "t"},
            out_metadata={"topic": "t", "operation": "insert", "id": 7},
        ),
        Example(
            "a delete, marked in the row too",
            {"addOperationFields": True},
            _DELETE,
            ('{"id":7,"__op":"d","__deleted":"true"}',),
            out_metadata=_DELETED,
        ),
        Example(
            "a row of the snapshot",
            {"snapshotOperation": "update", "addOperationFields": True},
            '{"payload":{"op":"r","after":{"k":1}}}',
            ('{"k":1,"__op":"r","__deleted":"false"}',),
            out_metadata={"operation": "update"},
        ),
        Example(
            "parts of the source in the row; missing ones are left out",
            {"addSourceFields": ["db", "gtid"]},
            _SOURCE,
            ('{"id":7,"source_db":"shop"}',),
            out_metadata={"operation": "update", "id": 7},
        ),
        Example(
            "the source in the metadata",
            {"includeSourceInMetadata": True},
            _SOURCE,
            ('{"id":7}',),
            out_metadata={"operation": "update", "id": 7, "source_db": "shop", "source_lsn": 9},
        ),
        Example(
            "an event without `payload`: Kafka Connect with schemas disabled",
            {},
            '{"before":null,"after":{"id":7},"source":{"db":"shop"},"op":"c","ts_ms":1}',
            ('{"id":7}',),
            out_metadata={"operation": "insert", "id": 7},
        ),
        Example(
            "times and decimals by the schema beside the payload",
            {},
            _TYPED,
            ('{"amount":123.456,"at":"2022-11-01T12:00:01.123456Z","day":"2022-11-01"}',),
            out_metadata={"operation": "insert"},
        ),
        Example(
            "without a schema: types by name",
            {"fieldTypes": {"at": "MicroTimestamp", "price": "Decimal(2)"}},
            '{"op":"c","after":{"at":1667304001123456,"price":"AJY="}}',
            ('{"at":"2022-11-01T12:00:01.123456Z","price":1.50}',),
            out_metadata={"operation": "insert"},
        ),
        Example(
            "a large value that the update has left alone",
            {},
            '{"op":"u","after":{"id":7,"n":"x","text":"__debezium_unavailable_value"}}',
            ('{"id":7,"n":"x"}',),
            out_metadata={"operation": "update", "id": 7, "unavailable": "text"},
        ),
        Example(
            "a document of MongoDB",
            {},
            '{"op":"c","after":"{\\"_id\\":{\\"$oid\\":\\"6f\\"},\\"n\\":{\\"$numberLong\\":\\"5\\"}}"}',
            ('{"_id":"6f","n":5}',),
            out_metadata={"operation": "insert"},
        ),
        Example(
            "a delete without the row before: the row of the key",
            {},
            '{"op":"d","before":null}',
            ('{"id":7}',),
            metadata={"key": _KEY},
            out_metadata={"key": _KEY, **_DELETED},
        ),
        Example(
            "an object that is not an event: unchanged",
            {},
            '{"op":"add","after":5}',
            ('{"op":"add","after":5}',),
            out_metadata={},
        ),
        Example("a tombstone: dropped", {}, None, ()),
        Example(
            "a tombstone: deleted by its key",
            {"inferDeleteFromTombstone": True, "addOperationFields": True},
            None,
            ('{"id":7,"__op":"d","__deleted":"true"}',),
            metadata={"key": _KEY},
            out_metadata={"key": _KEY, **_DELETED},
        ),
        Example(
            "a tombstone whose key is not an object",
            {"inferDeleteFromTombstone": True},
            "  ",
            error="the key of this tombstone is not a JSON object",
            metadata={"key": "7"},
        ),
        Example(
            "a truncate", {}, '{"payload":{"op":"t"}}', error="payload.op is none of c, r, u, d"
        ),
        Example("no row", {}, '{"op":"d","before":null}', error="before is not an object"),
    )

    @field_validator("add_source_fields")
    @classmethod
    def _none_blank(cls, fields: tuple[str, ...]) -> tuple[str, ...]:
        if not all(field.strip() for field in fields):
            raise ValueError("has an empty entry; give keys of the event's source")
        return fields

    @field_validator("field_types")
    @classmethod
    def _types_exist(cls, types: Mapping[str, str]) -> Mapping[str, str]:
        for name in types.values():
            type_by_name(name)
        return types

    @override
    def compile(self, context: Context) -> Apply:
        operations = self._operations()
        types = {name: type_by_name(kind) for name, kind in self.field_types.items()}
        unknown = f"op is none of {', '.join(operations)}"

        def apply(record: Record) -> Record | None:
            body = record.body
            if isinstance(body, NotJson):
                return self._tombstone(record, operations["d"], types) if body.empty else record
            event = change_event(body)
            if event is None:
                return record
            code = event.fields["op"]
            operation = operations.get(code) if isinstance(code, str) else None
            if operation is None:
                raise RejectedRecord("step", event.place + unknown)
            outcome = event.row(operation.side, types, operation.absent)
            if outcome is None and operation.side == "before":
                key = record.metadata.get("key")
                row = key_row(key, types, documents=event.is_of_mongodb)
                outcome = None if row is None else (row, [])
            if outcome is None:
                reason = f"{operation.side} is not an object: {operation.name} needs it"
                raise RejectedRecord("step", event.place + reason)
            return self._unwrap(record, *outcome, operation, event.fields.get("source"))

        return apply

    def _operations(self) -> dict[str, _Operation]:
        names = {"c": "insert", "r": self.snapshot_operation, "u": "update", "d": "delete"}
        operations = {}
        for code, name in names.items():
            side, deleted = ("before", "true") if code == "d" else ("after", "false")
            fields = {"__op": code, "__deleted": deleted} if self.add_operation_fields else {}
            placeholder = "" if code == "d" else self.unavailable_value_placeholder
            absent = placeholders(placeholder) if placeholder else ()
            operations[code] = _Operation(name, side, fields, absent)
        return operations

    def _unwrap(
        self,
        record: Record,
        row: dict[str, Any],
        absent: list[str],
        operation: _Operation,
        source: Any,
    ) -> Record:
        metadata = {**record.metadata, "operation": operation.name}
        if absent:
            metadata[UNAVAILABLE] = ",".join(absent)
        if "id" in row:
            metadata["id"] = row["id"]
        if operation.fields:
            row = {**row, **operation.fields}
        if self.add_source_fields and isinstance(source, dict):
            row = {**row, **_pick(source, self.add_source_fields)}
        if self.include_source_in_metadata and isinstance(source, dict):
            metadata.update(_pick(source, source))
        return Record(row, metadata, record.route)

    def _tombstone(
        self, record: Record, delete: _Operation, types: Mapping[str, Convert]
    ) -> Record | None:
        if not self.infer_delete_from_tombstone:
            return None
        row = key_row(record.metadata.get("key"), types)
        if row is None:
            # Dropping it, as the DataFlow Operator does, would lose a delete without a trace.
            raise RejectedRecord("step", "the key of this tombstone is not a JSON object")
        return self._unwrap(record, row, [], delete, None)

    @property
    @override
    def event_fields(self) -> frozenset[str]:
        return frozenset(self.field_types)

    @override
    def reads(self) -> frozenset[str]:
        return frozenset({"key"})


def _pick(source: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    return {f"source_{key}": source[key] for key in keys if key in source}
