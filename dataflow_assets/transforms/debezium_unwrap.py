"""debeziumUnwrap: the row out of a Debezium change event."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import field_validator
from typing_extensions import override

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.records.record import NotJson, Record, parse
from dataflow_assets.records.step import Apply, Context, Example, Step

_INSERT = '{"payload":{"op":"c","before":null,"after":{"id":7,"n":"x"}}}'
_SOURCE = '{"payload":{"op":"u","after":{"id":7},"source":{"db":"shop","lsn":9}}}'
_DELETE = '{"payload":{"op":"d","before":{"id":7},"after":null}}'
_KEY = '{"schema":{"type":"struct"},"payload":{"id":7}}'
_DELETED = {"operation": "delete", "id": 7}


@dataclass(frozen=True)
class _Operation:
    """What an operation is called, where its row stands, and which fields tell of it."""

    name: str
    side: str
    fields: Mapping[str, str]


class DebeziumUnwrap(Step):
    """Replaces a Debezium change event by its row, and says in the metadata what happened to it.

    | `op` | the body becomes | `metadata.operation` |
    |---|---|---|
    | `c` | `after` | `insert` |
    | `r` (snapshot) | `after` | `snapshotOperation` |
    | `u` | `after` | `update` |
    | `d` | `before` | `delete` |

    Any other operation is rejected, and so is an event without the object it needs. The row's `id`,
    where it has one, becomes `metadata.id`. The event is under `payload`, or is the body itself
    (Kafka Connect with schemas disabled): an object with `op`, and with `before` or `after` that
    are objects or null. Other objects pass unchanged. Tombstones are dropped.
    """

    type: ClassVar[str] = "debeziumUnwrap"
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

    @override
    def compile(self, context: Context) -> Apply:
        operations, unwrapped, tombstone = self._operations(), self._unwrapped, self._tombstone
        unknown = f"op is none of {', '.join(operations)}"

        def apply(record: Record) -> Record | None:
            body = record.body
            if isinstance(body, NotJson):
                return tombstone(record, operations["d"]) if body.empty else record
            event, place = _event(body)
            if event is None:
                return record
            code = event["op"]
            operation = operations.get(code) if isinstance(code, str) else None
            if operation is None:
                raise RejectedRecord("step", place + unknown)
            row = event.get(operation.side)
            if not isinstance(row, dict):
                reason = f"{place}{operation.side} is not an object: {operation.name} needs it"
                raise RejectedRecord("step", reason)
            return unwrapped(record, row, operation, event.get("source"))

        return apply

    def _operations(self) -> dict[str, _Operation]:
        names = {"c": "insert", "r": self.snapshot_operation, "u": "update", "d": "delete"}
        found = {}
        for code, name in names.items():
            side, deleted = ("before", "true") if code == "d" else ("after", "false")
            fields = {"__op": code, "__deleted": deleted} if self.add_operation_fields else {}
            found[code] = _Operation(name, side, fields)
        return found

    def _unwrapped(
        self, record: Record, row: dict[str, Any], operation: _Operation, source: Any
    ) -> Record:
        metadata = {**record.metadata, "operation": operation.name}
        if "id" in row:
            metadata["id"] = row["id"]
        if operation.fields:
            row = {**row, **operation.fields}
        if self.add_source_fields and isinstance(source, dict):
            row = {**row, **_picked(source, self.add_source_fields)}
        if self.include_source_in_metadata and isinstance(source, dict):
            metadata.update(_picked(source, source))
        return Record(row, metadata, record.route)

    def _tombstone(self, record: Record, delete: _Operation) -> Record | None:
        if not self.infer_delete_from_tombstone:
            return None
        row = _key_row(record.metadata.get("key"))
        if row is None:
            # Dropping it, as the DataFlow Operator does, would lose a delete without a trace.
            raise RejectedRecord("step", "the key of this tombstone is not a JSON object")
        return self._unwrapped(record, row, delete, None)

    @override
    def reads(self) -> frozenset[str]:
        return frozenset({"key"} if self.infer_delete_from_tombstone else ())


def _event(body: Any) -> tuple[dict[str, Any] | None, str]:
    """The change event in a body and the path to it; None where it holds none."""
    if not isinstance(body, dict):
        raise RejectedRecord("step", "the body of a change event must be an object")
    if "payload" in body:
        payload = body["payload"]
        return (payload if isinstance(payload, dict) and payload.get("op") else None), "payload."
    sides = [body[side] for side in ("before", "after") if side in body]
    bare = sides and all(side is None or isinstance(side, dict) for side in sides)
    return (body if bare and body.get("op") else None), ""


def _picked(source: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    return {f"source_{key}": source[key] for key in keys if key in source}


def _key_row(text: Any) -> dict[str, Any] | None:
    """The row that a message's key tells; with a schema beside it, only what its payload holds."""
    try:
        key = parse(text.encode()) if isinstance(text, str) else None
    except (RejectedRecord, UnicodeEncodeError):
        return None
    if not isinstance(key, dict):
        return None
    payload = key.get("payload")
    if isinstance(payload, dict):
        return payload
    return None if {"schema", "payload"} == key.keys() else key
