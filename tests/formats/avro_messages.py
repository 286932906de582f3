"""Avro messages as producers write them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import pyarrow as pa
from fastavro import parse_schema, schemaless_writer

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.formats.message_format import StoredSchema

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9,
                                   "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}  # fmt: skip


def record(*fields: tuple[str, Any], name: str = "R") -> str:
    """A schema of these fields."""
    listed = [{"name": field, "type": kind} for field, kind in fields]
    return json.dumps({"type": "record", "name": name, "fields": listed})


def written(schema: str | dict[str, Any], *values: Any) -> list[bytes]:
    """Each value alone."""
    parsed = parse_schema(json.loads(schema) if isinstance(schema, str) else schema)
    return [_one(parsed, value) for value in values]


def _one(parsed: Any, value: Any) -> bytes:
    out = BytesIO()
    schemaless_writer(out, parsed, value)
    return out.getvalue()


def headed(number: int, values: Iterable[bytes]) -> list[bytes]:
    """Values as those of a registry's schema."""
    return [b"\0" + number.to_bytes(4, "big") + value for value in values]


def bodies(values: Sequence[bytes | None]) -> pa.Array:
    return pa.array(values, pa.binary())


@dataclass
class Known:
    """Schemas by id, and how often each was asked for."""

    schemas: dict[int, StoredSchema]
    asked: list[int] = field(default_factory=list)

    def by_id(self, number: int) -> StoredSchema:
        self.asked.append(number)
        if number not in self.schemas:
            raise RejectedRecord("decode", f"no schema of the id {number}")
        return self.schemas[number]
