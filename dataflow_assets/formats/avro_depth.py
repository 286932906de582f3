"""Measures how deep values of a recursive schema are nested, before fastavro reads them.

fastavro's reader is C and follows each level by a call: a message of a million levels, which are a
million bytes, would end the process instead of being rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.formats.avro_schema import AvroSchema, Schema

MOST_LEVELS = 200
"""Of records inside records of their own kind; JSON is read to about as many."""

Skip = Callable[[bytes, int, int], int]
"""Finds where a value ends: of these bytes, from this one on, so many levels deep."""


class Depth:
    """Walks over values without decoding them."""

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._named: dict[str, Skip] = {}
        self._skip = self._skipper(schema.root)

    def check(self, values: Sequence[bytes]) -> None:
        """Raises RejectedRecord for a value that is nested too deeply, EOFError for a short one."""
        for value in values:
            if len(value) > MOST_LEVELS:  # each level has a byte at least
                self._skip(value, 0, 0)

    def _skipper(self, schema: Schema) -> Skip:
        resolved = self._schema.resolve(schema)
        kind = resolved if isinstance(resolved, str) else "union"
        if isinstance(resolved, dict):
            kind = resolved["type"]
        if kind == "record":
            return self._record(resolved)
        if kind == "union":
            return _union([self._skipper(one) for one in resolved])
        if kind in ("array", "map"):
            item = self._skipper(resolved["items" if kind == "array" else "values"])
            return _blocks(item, keyed=kind == "map")
        if kind == "fixed":
            return _skip_fixed(resolved["size"])
        return _PRIMITIVE[kind]

    def _record(self, resolved: Any) -> Skip:
        name = resolved["name"]
        if name not in self._named:
            fields: list[Skip] = []

            def skip(data: bytes, at: int, level: int) -> int:
                if level > MOST_LEVELS:
                    raise RejectedRecord("decode", f"nested more than {MOST_LEVELS} levels deep")
                for field in fields:
                    at = field(data, at, level + 1)
                return at

            self._named[name] = skip
            fields += [self._skipper(one["type"]) for one in resolved["fields"]]
        return self._named[name]


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data):
            raise EOFError
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at


def _long(data: bytes, at: int, _: int) -> int:
    return _number(data, at)[1]


def _skip_sized(data: bytes, at: int, _: int) -> int:
    size, at = _number(data, at)
    return _within(data, at, size)


def _within(data: bytes, at: int, size: int) -> int:
    if not 0 <= size <= len(data) - at:
        raise EOFError
    return at + size


def _skip_fixed(size: int) -> Skip:
    return lambda data, at, _: _within(data, at, size)


def _union(arms: Sequence[Skip]) -> Skip:
    def skip(data: bytes, at: int, level: int) -> int:
        arm, at = _number(data, at)
        if not 0 <= arm < len(arms):
            raise IndexError
        return arms[arm](data, at, level)

    return skip


def _blocks(item: Skip, *, keyed: bool) -> Skip:
    def skip(data: bytes, at: int, level: int) -> int:
        count, at = _number(data, at)
        while count:
            if count < 0:  # the bytes of the block follow
                _, at = _number(data, at)
            for _ in range(abs(count)):
                if keyed:
                    at = _skip_sized(data, at, level)
                at = item(data, at, level)
            count, at = _number(data, at)
        return at

    return skip


_PRIMITIVE: dict[str, Skip] = {
    "null": lambda _data, at, _level: at,
    "boolean": _skip_fixed(1),
    "int": _long,
    "long": _long,
    "float": _skip_fixed(4),
    "double": _skip_fixed(8),
    "bytes": _skip_sized,
    "string": _skip_sized,
    "enum": _long,
}
