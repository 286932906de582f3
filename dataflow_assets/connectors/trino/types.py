"""Trino's types and the Arrow types that they travel as: one table for source, sink and docs.

Maps travel as JSON text, also inside arrays and rows; a sink fills them as maps. Times of more than
nine digits of a second, and what has no Arrow form of its own, travel as their text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from dataflow_assets.connectors.trino.type_names import TrinoType
from dataflow_assets.contracts import Kind, Note, TypeRow, checked_name
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.types.comments import COMMENTS, commented_kind, text_kind
from dataflow_assets.sdk.types.table import TypeRule, typed_field

TRINO_TYPE = b"dataflow.trino.type"
"""Field metadata: the column's own type, for a sink of the same system."""
_TEXT = pa.string()


RULES = (
    TypeRule(("boolean",), pa.bool_()),
    TypeRule(("tinyint",), pa.int8()),
    TypeRule(("smallint",), pa.int16()),
    TypeRule(("integer",), pa.int32()),
    TypeRule(("bigint",), pa.int64()),
    TypeRule(("real",), pa.float32()),
    TypeRule(("double",), pa.float64()),
    TypeRule(("varchar",), _TEXT, note="varchar(n) too: longer text is rejected"),
    TypeRule(("char",), _TEXT, note="filled up with spaces"),
    TypeRule(("varbinary",), pa.binary()),
    TypeRule(("date",), pa.date32()),
    TypeRule(("json",), _TEXT, Kind.JSON),
    TypeRule(("uuid",), _TEXT, Kind.UUID),
    TypeRule(("ipaddress",), _TEXT, Kind.TEXT),
    TypeRule(("interval day to second",), _TEXT, Kind.TEXT),
    TypeRule(("interval year to month",), _TEXT, Kind.TEXT),
)
_BY_NAME = {name: rule for rule in RULES for name in rule.names}
_ZONED, _TIME_ZONED = "timestamp with time zone", "time with time zone"
_KEYS = frozenset({"varchar", "char", "boolean", "tinyint", "smallint", "integer", "bigint"})
"""Types of keys that Trino makes names in JSON of."""
_NO_JSON = frozenset(
    {"uuid", "varbinary", "ipaddress", "time", _TIME_ZONED}
    | {f"interval {unit}" for unit in ("day to second", "year to month")}
)
"""Types that it casts to no JSON."""
_EXAMPLES = (
    ("decimal(10, 2)", "any precision, up to 38 digits"),
    ("time(6)", "0 to 6 digits; of more digits as text"),
    ("time(6) with time zone", ""),
    ("timestamp(6)", "0 to 6 digits"),
    ("timestamp(9)", "7 to 9 digits; of more digits as text"),
    ("timestamp(6) with time zone", "0 to 6 digits, in UTC"),
    ("timestamp(9) with time zone", "7 to 9 digits, in UTC; of more digits as text in UTC"),
    ("array(integer)", ""),
    ("row(a integer)", "fields without a name: `field1`, `field2`, ..."),
    (
        "map(varchar, integer)",
        "also inside arrays and rows; zoned times are text in UTC; a sink fills maps from objects",
    ),
)


def rows() -> tuple[TypeRow, ...]:
    others = (TypeRow(name, field("", name), note) for name, note in _EXAMPLES)
    return (*(rule.row() for rule in RULES), *others)


def field(name: str, text: str) -> pa.Field:
    """The Arrow field of a source's column. Raises PermanentError where there is none."""
    return _field(name, text, *_arrow(name, TrinoType.of(text)))


def sink_field(name: str, text: str, *, nullable: bool, comment: str) -> pa.Field:
    """The Arrow field of a sink's column. Raises PermanentError where there is none."""
    field = _field(name, text, *_arrow(name, TrinoType.of(text), _map), comment)
    return field.with_nullable(nullable)


def _field(
    name: str, text: str, arrow: pa.DataType, mark: Kind | None, comment: str = ""
) -> pa.Field:
    kind = TrinoType.of(text)
    if mark is None and kind.name == "varchar":
        mark = commented_kind(comment)
    notes: dict[bytes, bytes] = {TRINO_TYPE: text.encode()}
    if kind.name in {"varchar", "char"} and kind.numbers:
        notes[Note.MAX_LENGTH] = str(kind.numbers[0]).encode()
    return typed_field(checked_name(name), arrow, mark, notes=notes)


Made = tuple[pa.DataType, Kind | None]


def _json_text(name: str, kind: TrinoType) -> Made:
    del name, kind
    return _TEXT, Kind.JSON


def _map(name: str, kind: TrinoType) -> Made:
    """Keys that are no names in JSON are texts, of which Trino makes them."""
    key, _ = _arrow(name, kind.inner[0], _map)
    plain = pa.types.is_integer(key) or pa.types.is_decimal(key) or pa.types.is_temporal(key)
    return pa.map_(key if plain else _TEXT, _element("value", name, kind.inner[1], _map)), None


def _arrow(
    name: str, kind: TrinoType, of_map: Callable[[str, TrinoType], Made] = _json_text
) -> Made:
    if kind.name == "decimal":
        precision, scale = (*kind.numbers, 0)[:2]
        return pa.decimal128(precision, scale), None
    if kind.name == "array":
        return pa.list_(_element("item", name, kind.inner[0], of_map)), None
    if kind.name == "row":
        pairs = zip(kind.labels, kind.inner, strict=True)
        return pa.struct([_element(label, name, each, of_map) for label, each in pairs]), None
    if kind.name == "map":
        return of_map(name, kind)
    if kind.name in {"timestamp", _ZONED, "time", _TIME_ZONED}:
        return _time(kind)
    rule = _BY_NAME.get(kind.name)
    if rule is None:
        raise PermanentError(
            f"column {name} has the type {kind.spelling}, which has no form outside Trino; leave "
            "it out, or give a `query` that casts it"
        )
    return rule.arrow, rule.kind


def _time(kind: TrinoType) -> Made:
    if kind.name == "time" and kind.digits <= 6:
        return pa.time64("us"), None
    if kind.name.startswith("time ") or kind.name == "time" or kind.digits > 9:
        return _TEXT, Kind.TEXT
    unit = "us" if kind.digits <= 6 else "ns"
    return pa.timestamp(unit, "UTC" if kind.name == _ZONED else None), None


def _element(
    label: str, column: str, kind: TrinoType, of_map: Callable[[str, TrinoType], Made]
) -> pa.Field:
    return typed_field(label, *_arrow(column, kind, of_map))


def select_expression(name: str, text: str) -> str:
    """The expression whose values, as Trino's JSON has them, `decode` makes a column of.

    Times are selected in UTC: in text of its own zone, the hour when clocks go back comes twice.
    """
    kind = TrinoType.of(text)
    if kind.name == _ZONED and kind.digits <= 9:
        return f"CAST(at_timezone({name}, 'UTC') AS timestamp({kind.digits}))"
    value = _in_utc(name, kind)
    in_json = kind.name == "map" and _casts_to_json(_with_texts(kind))
    return f"json_format(CAST({value} AS json))" if in_json else value


def _casts_to_json(kind: TrinoType) -> bool:
    if kind.name in _NO_JSON or (kind.name == "map" and kind.inner[0].name not in _KEYS):
        return False
    return all(map(_casts_to_json, kind.inner))


def _in_utc(value: str, kind: TrinoType, depth: int = 0) -> str:
    """The value with text in UTC in place of each zoned time inside of it."""
    if not kind.has(_ZONED):
        return value
    if kind.name == _ZONED:
        return f"CAST(at_timezone({value}, 'UTC') AS varchar)"
    if kind.name == "row":
        inner = enumerate(kind.inner, 1)
        members = ", ".join(_in_utc(f"{value}[{at}]", each, depth) for at, each in inner)
        row = f"CAST(ROW({members}) AS {_with_texts(kind).spelling})"
        return f"IF({value} IS NULL, NULL, {row})"
    key, item = f"k{depth}", f"e{depth}"
    changed = _in_utc(item, kind.inner[-1], depth + 1)
    if kind.name == "array":
        return f"transform({value}, {item} -> {changed})"
    items = f"transform_values({value}, ({key}, {item}) -> {changed})"
    keys = _in_utc(key, kind.inner[0], depth + 1)
    return f"transform_keys({items}, ({key}, {item}) -> {keys})"


def _with_texts(kind: TrinoType) -> TrinoType:
    if kind.name == _ZONED:
        return TrinoType("varchar")
    return replace(kind, inner=tuple(map(_with_texts, kind.inner)))


def declaration(column: pa.Field) -> str:
    """The narrowest Trino type that loses nothing of an interchange field's values."""
    if hint := (column.metadata or {}).get(TRINO_TYPE):
        return str(hint.decode())
    kind = text_kind(column, inside=False)
    return (
        _type_declaration(column.type)
        if kind is None
        else "uuid"
        if kind == Kind.UUID
        else "varchar"
    )


def doc(column: pa.Field) -> str:
    """The comment of a column that is made for this one: what its text is."""
    return COMMENTS.get(text_kind(column, inside=False), "")


def _type_declaration(arrow: pa.DataType) -> str:
    if pa.types.is_decimal(arrow):
        return f"decimal({arrow.precision}, {arrow.scale})"
    if pa.types.is_timestamp(arrow):
        digits = 9 if arrow.unit == "ns" else 6
        return f"timestamp({digits})" + (" with time zone" if arrow.tz else "")
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow):
        return f"array({declaration(arrow.value_field)})"
    if pa.types.is_map(arrow):
        return f"map({declaration(arrow.key_field)}, {declaration(arrow.item_field)})"
    if pa.types.is_struct(arrow):
        members = (f'"{each.name}" {declaration(each)}' for each in arrow)
        return f"row({', '.join(members)})"
    return _SIMPLE.get(arrow, "varchar")


_SIMPLE = {
    **{rule.arrow: rule.names[0] for rule in RULES if rule.arrow != _TEXT},
    pa.uint8(): "smallint",
    pa.uint16(): "integer",
    pa.uint32(): "bigint",
    pa.uint64(): "decimal(20, 0)",
    pa.time64("us"): "time(6)",
    pa.large_binary(): "varbinary",
}
