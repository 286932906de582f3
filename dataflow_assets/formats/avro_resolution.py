"""Whether the logical types of two Avro schemas agree, where one reads what the other has written.

Avro's rules of resolution look at them: decimals match only with equal digits, and milliseconds are
no microseconds. fastavro never sees them where values become columns.
"""

from __future__ import annotations

from typing import Any

from dataflow_assets.formats.avro_logical import logical_type
from dataflow_assets.formats.avro_schema import AvroSchema, Schema


def misread(writer: AvroSchema, reader: AvroSchema) -> str:
    """The first place where values would be read as others; empty where there is none.

    Called once per process for each pair of schemas.
    """
    return _Pair(writer, reader).unequal(writer.root, reader.root, "the value")


class _Pair:
    def __init__(self, writer: AvroSchema, reader: AvroSchema) -> None:
        self._writer, self._reader = writer, reader
        self._seen: set[tuple[str, str]] = set()

    def unequal(self, written: Schema, wanted: Schema, place: str) -> str:
        one, other = self._writer.resolved(written), self._reader.resolved(wanted)
        if isinstance(one, list) or isinstance(other, list):
            return self._of_unions(one, other, place)
        if isinstance(one, str) or isinstance(other, str):
            return ""
        if problem := _logical(one, other, place):
            return problem
        names = str(one.get("name")), str(other.get("name"))
        if one["type"] != other["type"] or ("name" in one and names in self._seen):
            return ""
        self._seen.add(names)
        return self._inside(one, other, place)

    def _of_unions(self, one: Schema, other: Schema, place: str) -> str:
        """Only where each has one type beside null: which types of others meet, values tell."""
        arms = [_filled(one), _filled(other)]
        if any(len(filled) != 1 for filled in arms):
            return ""
        return self.unequal(arms[0][0], arms[1][0], place)

    def _inside(self, one: Any, other: Any, place: str) -> str:
        for key in ("items", "values"):
            if key in one and (problem := self.unequal(one[key], other[key], place)):
                return problem
        fields = {field["name"]: field["type"] for field in one.get("fields", ())}
        for field in other.get("fields", ()):
            names = [field["name"], *field.get("aliases", ())]
            found = next((fields[name] for name in names if name in fields), None)
            if found is not None and (
                problem := self.unequal(found, field["type"], f"field {field['name']}")
            ):
                return problem
        return ""


def _filled(schema: Schema) -> list[Schema]:
    arms = schema if isinstance(schema, list) else [schema]
    return [one for one in arms if one not in ("null", {"type": "null"})]


def _logical(one: Any, other: Any, place: str) -> str:
    """One that names no logical type has numbers or bytes as they are, which is allowed."""
    written, wanted = _described(one), _described(other)
    if written is None or wanted is None or written == wanted:
        return ""
    return f"{place} was written as {written}, and would be read as {wanted}"


def _described(schema: Any) -> str | None:
    name = logical_type(schema)
    if name != "decimal":
        return name
    return f"decimal({schema['precision']}, {schema.get('scale', 0)})"
