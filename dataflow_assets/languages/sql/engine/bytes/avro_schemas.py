"""The Avro schema that Flink derives from columns."""

from __future__ import annotations

import json
from typing import Any

from dataflow_assets.languages.sql.engine.bytes.layout import FlinkLayout
from dataflow_assets.languages.sql.engine.types import FlinkType

RECORD = "org.apache.flink.avro.generated.record"
_PLAIN = {
    "BOOLEAN": "boolean",
    "TINYINT": "int",
    "SMALLINT": "int",
    "INT": "int",
    "BIGINT": "long",
    "FLOAT": "float",
    "DOUBLE": "double",
    "CHAR": "string",
    "VARCHAR": "string",
    "VARBINARY": "bytes",
}


def problem(kind: FlinkType) -> str:
    """Why a column cannot be in Avro; empty where it can."""
    if kind.kind == "TIMESTAMP_LTZ":
        return "Avro's legacy mapping has no TIMESTAMP_LTZ: declare TIMESTAMP(3)"
    if kind.kind in ("TIME", "TIMESTAMP") and kind.length > 3:
        return f"Avro has milliseconds: declare {kind.kind}(3)"
    if kind.kind == "MAP" and not kind.items[0].text:
        return "keys of Avro's maps are texts"
    return next(filter(None, map(problem, kind.items)), "")


def schema_of(layout: FlinkLayout) -> str:
    """Returns the schema as JSON; a nullable column is a union whose first type is null."""
    columns = zip(layout.names, layout.types, layout.nullable, strict=True)
    fields = [_field(name, kind, RECORD, nullable) for name, kind, nullable in columns]
    namespace, _, name = RECORD.rpartition(".")
    schema = {"type": "record", "name": name, "namespace": namespace, "fields": fields}
    return json.dumps(schema, separators=(",", ":"))


def _field(name: str, kind: FlinkType, parent: str, nullable: bool) -> dict[str, Any]:
    schema = _schema(kind, f"{parent}_{name}")
    if not nullable:
        return {"name": name, "type": schema}
    return {"name": name, "type": ["null", schema], "default": None}


def _schema(kind: FlinkType, name: str) -> Any:
    if kind.kind in _PLAIN:
        return _PLAIN[kind.kind]
    if kind.kind == "DECIMAL":
        logical = {"type": "bytes", "logicalType": "decimal"}
        return {**logical, "precision": kind.length, "scale": kind.scale}
    if kind.kind == "DATE":
        return {"type": "int", "logicalType": "date"}
    if kind.kind == "TIME":
        return {"type": "int", "logicalType": "time-millis"}
    if kind.kind == "TIMESTAMP":
        return {"type": "long", "logicalType": "timestamp-millis"}
    if kind.kind == "ARRAY":
        return {"type": "array", "items": _nullable(kind.items[0], name)}
    if kind.kind == "MAP":
        return {"type": "map", "values": _nullable(kind.items[1], name)}
    namespace, _, last = name.rpartition(".")
    pairs = zip(kind.names, kind.items, strict=True)
    fields = [_field(one, inner, name, nullable=True) for one, inner in pairs]
    return {"type": "record", "name": last, "namespace": namespace, "fields": fields}


def _nullable(kind: FlinkType, name: str) -> Any:
    return ["null", _schema(kind, name)]
