"""Avro schemas: read, checked, and written once more as the decoder is to read them.

fastavro makes a Python object of each date, time and decimal, and rounds what has too many digits.
A column of them is built many times faster from what the message holds, so the logical types are
left out of the schema that fastavro reads; `avro_logical` and `avro_json` know them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from itertools import count
from typing import Any

from fastavro import parse_schema
from fastavro.schema import SchemaParseException, UnknownType

from dataflow_assets.formats.avro_logical import logical_type

Schema = Any
"""A schema as JSON: a name, a list (a union), or an object with `type`."""

_COMPLEX = frozenset({"record", "error", "enum", "array", "map", "fixed"})
PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NOT_JSON = frozenset({"float", "double", "bytes", "fixed"})
_KEPT = ("name", "symbols", "size")
ARM = "arm"
"""The field of a type of a union begins with this, and ends with its place."""
_INNER = ("type", "items", "values", "fields")
_REFUSALS = (SchemaParseException, UnknownType, ValueError, TypeError, LookupError, AttributeError)


class AvroSchema:
    """A schema whose names are all known.

    Raises ValueError, with the line of a mistake in the JSON, where the text is no Avro schema.
    """

    def __init__(self, text: str, references: Sequence[str] = ()) -> None:
        """`references`: the schemas whose names it uses, each after those that it uses itself."""
        names: dict[str, Any] = {}
        self._names: dict[str, Schema] = {}
        for one in references:
            self._add(_parse(one, names))
        self.root = _parse(text, names)
        self._add(self.root)
        if unbounded := next(filter(self._takes_no_bytes, self._items(self.root, set())), None):
            raise ValueError(
                f"an array of {_show(unbounded)}: its items have no bytes, so that a message of a "
                "few bytes may hold any number of them"
            )

    def _add(self, schema: Schema) -> None:
        for one in _parts(schema):
            if isinstance(one, dict) and "name" in one and "type" in one:
                self._names[one["name"]] = one

    def resolve(self, schema: Schema) -> Schema:
        """Returns what a name stands for; a nested `{"type": {...}}` as what is inside."""
        while True:
            if isinstance(schema, str) and schema not in PRIMITIVES:
                schema = self._names[schema]
            elif isinstance(schema, dict) and not isinstance(schema["type"], str):
                schema = schema["type"]
            elif isinstance(schema, dict) and schema["type"] in self._names.keys() - _COMPLEX:
                schema = self._names[schema["type"]]
            else:
                return schema

    def records(self) -> Iterator[Any]:
        """Every record that has a name, which all have."""
        return (one for one in self._names.values() if "fields" in one)

    @cached_property
    def recursive(self) -> frozenset[str]:
        """The names of records that can hold a record of their own kind."""
        return frozenset(name for name in self._names if name in self._reachable(name))

    def _reachable(self, name: str) -> set[str]:
        reachable: set[str] = set()
        waiting = [self._names[name]]
        while waiting:
            for one in _children(self.resolve(waiting.pop())):
                inner = self.resolve(one)
                own_name = inner.get("name") if isinstance(inner, dict) else None
                if own_name is None or own_name not in reachable:
                    waiting.append(inner)
                if own_name is not None:
                    reachable.add(own_name)
        return reachable

    def is_json(self, schema: Schema) -> bool:
        """Returns whether values of a type become JSON: no column has a type for them."""
        resolved = self.resolve(schema)
        if isinstance(resolved, list):
            return len(non_null(resolved)) > 1 or any(map(self.is_json, non_null(resolved)))
        if not isinstance(resolved, dict):
            return False
        return bool(resolved["type"] == "map" or resolved.get("name") in self.recursive)

    def is_plain(self, schema: Schema) -> bool:
        """Returns whether values of a type are, as fastavro reads them, what JSON has."""
        waiting, seen = [schema], set[str]()
        while waiting:
            resolved = self.resolve(waiting.pop())
            kind = resolved if isinstance(resolved, str) else "union"
            if isinstance(resolved, list) and len(non_null(resolved)) > 1:
                return False  # the value says which type it is of
            if isinstance(resolved, dict):
                kind = resolved["type"]
                if "name" in resolved and resolved["name"] in seen:
                    continue
                seen.add(resolved.get("name", ""))
            if kind in _NOT_JSON or (isinstance(resolved, dict) and logical_type(resolved)):
                return False
            waiting += _children(resolved)
        return True

    @cached_property
    def raw(self) -> Schema:
        """The schema for fastavro: numbers, bytes and texts, each name defined at its first use.

        In a union of several types each is a record of one field, named for its place in the union:
        the bytes are the same, and the value says of which type it is.
        """
        return self._write(self.root, set(), count())

    @cached_property
    def bare(self) -> Schema:
        """The schema without any logical type: what fastavro writes, of numbers and bytes."""
        return self._write(self.root, set(), None)

    def optional_record(self) -> tuple[AvroSchema, int, int] | None:
        """Returns the record of a union with null, and the places of both; None for others."""
        root = self.resolve(self.root)
        if not isinstance(root, list) or len(root) != 2 or len(non_null(root)) != 1:
            return None
        place = 0 if is_null(root[1]) else 1
        inner = self.resolve(root[place])
        if not isinstance(inner, dict) or inner["type"] != "record":
            return None
        alone = copy(self)
        alone.root = inner
        for name in ("raw", "bare"):
            alone.__dict__.pop(name, None)
        return alone, place, 1 - place

    def _write(self, schema: Schema, done: set[str], arms: Iterator[int] | None) -> Schema:
        """`arms`: numbers for the types of unions; None: they stay as they are."""
        resolved = self.resolve(schema)
        if isinstance(resolved, str):
            return resolved
        if isinstance(resolved, list):
            inner = [self._write(one, done, arms) for one in resolved]
            if arms is None or len(non_null(resolved)) < 2:
                return inner
            return [
                one if is_null(resolved[at]) else _arm(next(arms), at, one)
                for at, one in enumerate(inner)
            ]
        if "name" in resolved:
            if resolved["name"] in done:
                return resolved["name"]
            done.add(resolved["name"])
        written = {"type": resolved["type"], **_some(resolved, _KEPT)}
        for key in ("items", "values"):
            if key in resolved:
                written[key] = self._write(resolved[key], done, arms)
        if "fields" in resolved:
            written["fields"] = [
                {"name": one["name"], "type": self._write(one["type"], done, arms)}
                for one in resolved["fields"]
            ]
        return written

    def _items(self, schema: Schema, seen: set[str]) -> Iterator[Schema]:
        """The types of the items of every array."""
        resolved = self.resolve(schema)
        if isinstance(resolved, dict) and "name" in resolved:
            if resolved["name"] in seen:
                return
            seen.add(resolved["name"])
        if isinstance(resolved, dict) and resolved["type"] == "array":
            yield resolved["items"]
        for one in _children(resolved):
            yield from self._items(one, seen)

    def _takes_no_bytes(self, schema: Schema) -> bool:
        resolved = self.resolve(schema)
        if isinstance(resolved, str | list):
            return bool(resolved == "null")
        if resolved["type"] == "record":
            inner = (one["type"] for one in resolved["fields"])
            return resolved["name"] not in self.recursive and all(map(self._takes_no_bytes, inner))
        return bool(resolved["type"] == "null" or resolved.get("size") == 0)


def _parse(text: str, names: dict[str, Any]) -> Schema:
    try:
        written = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"line {error.lineno}, column {error.colno}: no JSON: {error.msg}"
        ) from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    try:
        return parse_schema(_drop_unsuitable(written), named_schemas=names)
    except UnknownType as error:
        raise ValueError(f"unknown type {error.name}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except _REFUSALS as error:
        raise ValueError(f"no Avro schema: {error}") from None


def _drop_unsuitable(written: Any) -> Any:
    """Without logical types that do not suit their type: Avro ignores those, fastavro does not."""
    if isinstance(written, list):
        return [_drop_unsuitable(one) for one in written]
    if not isinstance(written, dict):
        return written
    kept = {key: _drop_unsuitable(one) if key in _INNER else one for key, one in written.items()}
    if "logicalType" in kept and logical_type(kept) is None:
        del kept["logicalType"]
    return kept


def _children(schema: Schema) -> Sequence[Schema]:
    if isinstance(schema, list):
        return schema
    if not isinstance(schema, dict):
        return ()
    inner = [schema[key] for key in ("items", "values") if key in schema]
    inner += [one["type"] for one in schema.get("fields", ())]
    return inner if isinstance(schema["type"], str) else [*inner, schema["type"]]


def _parts(schema: Schema) -> Iterator[Schema]:
    """A schema and everything inside; names are not followed."""
    yield schema
    for one in _children(schema):
        yield from _parts(one)


def non_null(union: Sequence[Schema]) -> list[Schema]:
    return [one for one in union if not is_null(one)]


def is_null(schema: Schema) -> bool:
    return schema in ("null", {"type": "null"})


def _arm(number: int, place: int, schema: Schema) -> Schema:
    field = {"name": f"{ARM}{place}", "type": schema}
    return {"type": "record", "name": f"_dataflow_arm_{number}", "fields": [field]}


def _some(content: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {key: content[key] for key in keys if key in content}


def _show(schema: Schema) -> str:
    return schema if isinstance(schema, str) else json.dumps(schema)[:80]
