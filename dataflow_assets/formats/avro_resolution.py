"""Avro's schema resolution: values of a message's schema as the reader's schema has them.

As Avro's specification says, with what fastavro's own resolution leaves out: logical types must be
the same where both schemas have one (a decimal of another scale would be another number), defaults
are read as schemas write them, and of a reader's union the same type is taken before a wider one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dataflow_assets.formats.avro_defaults import field_default
from dataflow_assets.formats.avro_logical import logical_type
from dataflow_assets.formats.avro_schema import ARM, AvroSchema, Schema, is_null, non_null

Change = Callable[[Any], Any]

_WIDER = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_NAMED = ("record", "enum", "fixed")


def resolution(writer: AvroSchema, reader: AvroSchema) -> Change | None:
    """Returns what makes the reader's values of the writer's, both as messages hold them.

    Called once per process for each pair of schemas.

    Returns:
        None where nothing changes.

    Raises:
        ValueError, with the place, where no value of the one is a value of the other.
    """
    return _Resolution(writer, reader).of(writer.root, reader.root, "the value")


def choose(arms: list[Schema], place: int, value: Any) -> Any:
    """A value of a union as `AvroSchema.raw` reads it."""
    return {f"{ARM}{place}": value} if len(non_null(arms)) > 1 else value


class _Resolution:
    def __init__(self, writer: AvroSchema, reader: AvroSchema) -> None:
        self._writer, self._reader = writer, reader
        self._named: dict[tuple[str, str], Change] = {}

    def of(self, written: Schema, wanted: Schema, where: str) -> Change | None:
        one, other = self._writer.resolve(written), self._reader.resolve(wanted)
        if isinstance(one, list):
            return self._from_union(one, other, where)
        if isinstance(other, list):
            return self._into_union(one, other, where)
        kind, into = _kind(one), _kind(other)
        _check_names(one, other, where)
        _check_logical(one, other, where)
        if kind == into == "record":
            return self._record(one, other)
        if kind == into == "enum":
            return _enum(one["symbols"], other, where)
        if kind == into == "array":
            item = self.of(one["items"], other["items"], f"{where}[]")
            return item and (lambda values: [_change(item, value) for value in values])
        if kind == into == "map":
            inner = self.of(one["values"], other["values"], f"{where}.*")
            return inner and (lambda found: {k: _change(inner, v) for k, v in found.items()})
        return _simple(kind, into, where)

    def _from_union(self, arms: list[Schema], wanted: Schema, where: str) -> Change:
        changes: dict[str, Change | None] = {}
        problems: dict[str, str] = {}
        for place, arm in enumerate(arms):
            try:
                changes[f"{ARM}{place}"] = self.of(arm, wanted, where)
            except ValueError as error:
                problems[f"{ARM}{place}"] = str(error)
        if not changes:
            raise ValueError("; ".join(problems.values()))
        names = [f"{ARM}{place}" for place, arm in enumerate(arms) if not is_null(arm)]
        null = next((f"{ARM}{at}" for at, arm in enumerate(arms) if is_null(arm)), "")

        def change(value: Any) -> Any:
            name, inner = (null, None) if value is None else (names[0], value)
            if value is not None and len(names) > 1:
                ((name, inner),) = value.items()
            if name in problems:
                raise ValueError(problems[name])
            arm = changes[name]
            return inner if arm is None else arm(inner)

        return change

    def _into_union(self, written: Schema, arms: list[Schema], where: str) -> Change | None:
        for place in sorted(range(len(arms)), key=lambda at: not self._is_same(written, arms[at])):
            try:
                change = self.of(written, arms[place], where)
            except ValueError:
                if len(non_null(arms)) == 1 and not (is_null(written) or is_null(arms[place])):
                    raise  # which says more
                continue
            if is_null(arms[place]) or (len(non_null(arms)) == 1 and change is None):
                return None
            return lambda value: choose(arms, place, _change(change, value))
        raise ValueError(f"{where}: the reader's union has no type for {_show(written)}")

    def _is_same(self, written: Schema, wanted: Schema) -> bool:
        other = self._reader.resolve(wanted)
        return not isinstance(other, list) and (_kind(written), logical_type(written)) == (
            _kind(other),
            logical_type(other),
        )

    def _record(self, written: Any, wanted: Any) -> Change:
        pair = written["name"], wanted["name"]
        if pair not in self._named:
            members: dict[str, Callable[[Mapping[str, Any]], Any]] = {}

            def change(value: Mapping[str, Any]) -> dict[str, Any]:
                return {name: member(value) for name, member in members.items()}

            self._named[pair] = change
            fields = {one["name"]: one for one in written["fields"]}
            try:
                for one in wanted["fields"]:
                    members[one["name"]] = self._member(fields, one)
            except ValueError:
                del self._named[pair]
                raise
        return self._named[pair]

    def _member(self, fields: Mapping[str, Any], one: Any) -> Callable[[Mapping[str, Any]], Any]:
        name = next((n for n in (one["name"], *one.get("aliases", ())) if n in fields), None)
        if name is not None:
            change = self.of(fields[name]["type"], one["type"], f"field {one['name']}")
            if change is None:
                return lambda value: value[name]
            return lambda value: change(value[name])
        if "default" not in one:
            raise ValueError(
                f"field {one['name']}: is only in the reader's schema, without default"
            )
        filled = field_default(self._reader, one, choose)
        return lambda _: filled


def check_defaults(schema: AvroSchema) -> None:
    """Raises ValueError that names a field whose default is not of its type."""
    for record in schema.records():
        for one in record["fields"]:
            if "default" in one:
                field_default(schema, one, choose)


def _change(change: Change | None, value: Any) -> Any:
    return value if change is None else change(value)


def _kind(schema: Schema) -> str:
    return schema if isinstance(schema, str) else schema["type"]


def _check_names(one: Schema, other: Schema, where: str) -> None:
    """Records, enums and fixed types match by their names without namespace, or by an alias."""
    kind = _kind(one)
    if kind != _kind(other) or kind not in _NAMED:
        return
    short = one["name"].rpartition(".")[2]
    if short != other["name"].rpartition(".")[2] and not {short, one["name"]}.intersection(
        other.get("aliases", ())
    ):
        raise ValueError(
            f"{where}: the message's {kind} is {one['name']}, the reader's {other['name']}"
        )
    if kind == "fixed" and one["size"] != other["size"]:
        raise ValueError(
            f"{where}: {one['size']} bytes in the message's schema, {other['size']} in the reader's"
        )


def _check_logical(one: Schema, other: Schema, where: str) -> None:
    first, second = _logical(one), _logical(other)
    if first and second and first != second:
        raise ValueError(f"{where} was written as {first}, and would be read as {second}")


def _logical(schema: Schema) -> str:
    name = logical_type(schema)
    if name == "decimal":
        return f"decimal({schema['precision']}, {schema.get('scale', 0)})"
    return name or ""


def _enum(symbols: list[str], wanted: Any, where: str) -> Change | None:
    reader_symbols = frozenset(wanted["symbols"])
    if reader_symbols.issuperset(symbols):
        return None

    def change(value: str) -> str:
        if value in reader_symbols:
            return value
        if "default" not in wanted:
            raise ValueError(f"{where}: the reader's enum has no {value}")
        return wanted["default"]  # type: ignore[no-any-return]

    return change


def _simple(kind: str, into: str, where: str) -> Change | None:
    if kind == into:
        return None
    if into not in _WIDER.get(kind, ()):
        raise ValueError(f"{where} was written as {kind}, which is not read as {into}")
    if into == "bytes":
        return str.encode
    if into == "string":
        return bytes.decode
    return float if kind in ("int", "long") and into != "long" else None


def _show(schema: Schema) -> str:
    kind = _kind(schema)
    return f"{kind} {schema['name']}" if kind in _NAMED else _logical(schema) or kind
