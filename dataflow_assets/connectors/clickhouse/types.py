"""ClickHouse's types and the Arrow types that they travel as: one table for source, sink and docs.

A source casts what it selects to `TypeRule.cast`, so that the Arrow types do not depend on the
server's version. Lists and tuples follow their elements; where an element has no Arrow form of its
own (a point, say), the whole column travels as JSON text. So do maps from a source; a sink fills
maps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from dataflow_assets.connectors.clickhouse.client import literal, quote
from dataflow_assets.connectors.clickhouse.type_names import ClickhouseType
from dataflow_assets.contracts import Kind, TypeRow, checked_name, kind_of
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.types.table import TypeRule, typed_field

CLICKHOUSE_TYPE = b"dataflow.clickhouse.type"
"""Field metadata: the column's own type, for a sink of the same system."""
JSON_SETTINGS = {
    "date_time_output_format": "iso",
    "output_format_json_quote_64bit_integers": 0,
    "output_format_json_quote_decimals": 0,
    "output_format_json_quote_denormals": 1,
}
"""How values inside JSON text are written: digits as they are, times in UTC, nan as text."""


def settings_of(query: str) -> dict[str, object]:
    """The settings that a query of columns needs that `select_expression` selects."""
    return dict(JSON_SETTINGS) if "toJSONString(" in query else {}


def text_checked(
    batch: pa.RecordBatch, schema: pa.Schema, refused: Callable[[str], PermanentError]
) -> pa.RecordBatch:
    """The batch in the schema: text is UTF-8 from here on, and ClickHouse takes any bytes for text.

    Called inside tasks, for each batch that is read.

    Args:
        batch: as the server has sent it.
        schema: its columns in their order.
        refused: by the name of a column that holds other bytes the error that is raised.
    """
    for field, column in zip(schema, batch.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            raise refused(field.name) from None
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)


DAYS = ("Date", "Date32")
_TEXT, _SECONDS = pa.string(), pa.timestamp("us", "UTC")
RULES = (
    TypeRule(("Bool",), pa.bool_()),
    *(TypeRule((f"Int{bits}",), pa.type_for_alias(f"int{bits}")) for bits in (8, 16, 32, 64)),
    *(TypeRule((f"UInt{bits}",), pa.type_for_alias(f"uint{bits}")) for bits in (8, 16, 32, 64)),
    TypeRule(("Int128", "Int256", "UInt128", "UInt256"), _TEXT, Kind.NUMERIC, "String"),
    TypeRule(("Float32",), pa.float32()),
    TypeRule(("BFloat16",), pa.float32(), cast="Float32"),
    TypeRule(("Float64",), pa.float64()),
    TypeRule(("String",), _TEXT, note="bytes that are not UTF-8 stop the read"),
    TypeRule(("FixedString",), _TEXT, cast="String", note="without the zero bytes that fill it up"),
    TypeRule(("UUID",), _TEXT, Kind.UUID, "String"),
    TypeRule(("Enum", "Enum8", "Enum16"), _TEXT, Kind.TEXT, "String", "the name, not the number"),
    TypeRule(("IPv4", "IPv6"), _TEXT, Kind.TEXT, "String"),
    TypeRule(DAYS, pa.date32(), cast="Date32"),
    TypeRule(("DateTime", "DateTime32"), _SECONDS, cast="DateTime64(6, 'UTC')"),
    TypeRule(("Time", "Time64"), _TEXT, Kind.TEXT, "String", "may lie beyond 24 hours"),
    TypeRule(("JSON",), _TEXT, Kind.JSON, "String"),
    TypeRule(("Dynamic", "Variant"), _TEXT, Kind.TEXT, "Nullable(String)"),
    TypeRule(
        tuple(
            f"Interval{unit}"
            for unit in (
                *("Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour"),
                *("Day", "Week", "Month", "Quarter", "Year"),
            )
        ),
        pa.int64(),
        cast="Int64",
        note="a number of that unit",
    ),
)
GEOMETRIES = ("Point", "Ring", "Polygon", "MultiPolygon", "LineString", "MultiLineString")
SINK_TEXT = ("Object", "QBit", *GEOMETRIES)
"""Types that make JSON text of a sink's whole column."""
JSON_TEXT = ("Map", *SINK_TEXT)
"""Likewise of a source's."""
_BY_NAME = {name: rule for rule in RULES for name in rule.names}
_OF_JSON = TypeRule(
    JSON_TEXT,
    _TEXT,
    Kind.JSON,
    note="also inside arrays and tuples; a sink fills maps from objects",
)
_SIMPLE = {rule.arrow: rule.names[0] for rule in RULES if not (rule.kind or rule.cast)} | {
    pa.date32(): "Date32",
    pa.time64("us"): "Time64(6)",
}
_DECIMALS = {"Decimal32": 9, "Decimal64": 18, "Decimal128": 38, "Decimal256": 76}


def rows() -> tuple[TypeRow, ...]:
    return (
        *(rule.row(nullable=False) for rule in RULES),
        TypeRow("Decimal(9, 2)", field("", "Decimal(9, 2)"), "any precision, up to 76 digits"),
        TypeRow("DateTime64(0 to 6)", field("", "DateTime64(6)"), "any zone, as UTC"),
        TypeRow("DateTime64(7 to 9)", field("", "DateTime64(9)"), "any zone, as UTC"),
        TypeRow("Array(Int32)", field("", "Array(Int32)")),
        TypeRow("Tuple(a Int32)", field("", "Tuple(a Int32)"), "without names: `1`, `2`, ..."),
        _OF_JSON.row(nullable=False),
    )


def field(name: str, text: str, as_json: Sequence[str] = JSON_TEXT) -> pa.Field:
    """The Arrow field of a column of this type. Raises PermanentError where there is none.

    Types with one of `as_json` inside are JSON text.
    """
    kind = ClickhouseType.of(text)
    arrow, mark = (_TEXT, Kind.JSON) if _is_json(kind, as_json) else _arrow(name, kind)
    notes = {CLICKHOUSE_TYPE: text.encode()}
    return typed_field(checked_name(name), arrow, mark, nullable=kind.nullable, notes=notes)


def select_expression(name: str, text: str, as_json: Sequence[str] = JSON_TEXT) -> str:
    """The expression whose values are those of `field`."""
    kind = ClickhouseType.of(text)
    if _is_json(kind, as_json):
        return f"toJSONString({quote(name)})"
    cast = _cast(kind)
    return quote(name) if cast == text else f"CAST({quote(name)}, {literal(cast)})"


def digits(text: str) -> int | None:
    """Returns how many digits of a second a point in time keeps; None of what is none."""
    bare = ClickhouseType.of(text).bare
    if bare.name == "DateTime64":
        return fraction(bare)
    return 0 if bare.name in {*DAYS, "DateTime", "DateTime32"} else None


def declaration(column: pa.Field) -> str:
    """The narrowest ClickHouse type that loses nothing of an interchange field's values."""
    metadata = column.metadata or {}
    if hint := metadata.get(CLICKHOUSE_TYPE):
        return str(hint.decode())
    name = _type_declaration(column.type, kind_of(column))
    wrapped = column.nullable and not name.startswith(("Array(", "Map(", "Tuple("))
    return f"Nullable({name})" if wrapped else name


def _type_declaration(arrow: pa.DataType, kind: Kind | None) -> str:
    if kind is not None:
        return "UUID" if kind == Kind.UUID else "String"
    if pa.types.is_decimal(arrow):
        return f"Decimal({arrow.precision}, {arrow.scale})"
    if pa.types.is_timestamp(arrow):
        return f"DateTime64({9 if arrow.unit == 'ns' else 6}, 'UTC')"
    if pa.types.is_list(arrow):
        return f"Array({declaration(arrow.value_field)})"
    if pa.types.is_map(arrow):  # of frames only
        return f"Map({_type_declaration(arrow.key_type, None)}, {declaration(arrow.item_field)})"
    if pa.types.is_struct(arrow):
        return f"Tuple({', '.join(f'{quote(each.name)} {declaration(each)}' for each in arrow)})"
    return _SIMPLE.get(arrow, "String")


def _is_json(kind: ClickhouseType, as_json: Sequence[str]) -> bool:
    return any(each.name in as_json or not _has_names(each) for each in kind.inside())


def _has_names(kind: ClickhouseType) -> bool:
    if kind.name != "Map":
        return True
    rule = _BY_NAME.get(ClickhouseType.of(kind.arguments[0]).bare.name)
    return rule is not None and (rule.arrow in (_TEXT, pa.date32()) or _is_integer(rule.arrow))


def _is_integer(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_integer(arrow))


def _arrow(name: str, kind: ClickhouseType) -> tuple[pa.DataType, Kind | None]:
    bare = kind.bare
    if bare.name == "Array":
        return pa.list_(_element("item", name, ClickhouseType.of(bare.arguments[0]))), None
    if bare.name == "Map":
        key, item = map(ClickhouseType.of, bare.arguments)
        return pa.map_(_arrow(name, key)[0], _element("value", name, item)), None
    if bare.name in {"Tuple", "Nested"}:
        struct = pa.struct([_element(label, name, each) for label, each in bare.elements()])
        return (struct if bare.name == "Tuple" else pa.list_(struct)), None
    if bare.name.startswith("Decimal"):
        precision, scale = _decimal(bare)
        return (pa.decimal128 if precision <= 38 else pa.decimal256)(precision, scale), None
    if bare.name == "DateTime64":
        return pa.timestamp("ns" if fraction(bare) > 6 else "us", "UTC"), None
    rule = _BY_NAME.get(bare.name)
    if rule is None:
        raise PermanentError(
            f"column {name} has the type {bare.name}, which cannot be read as it is; give a "
            "`query` that leaves it out or makes a value of it (finalizeAggregation, toString)"
        )
    return rule.arrow, rule.kind


def _element(label: str, column: str, kind: ClickhouseType) -> pa.Field:
    return typed_field(label, *_arrow(column, kind), nullable=kind.nullable)


def _cast(kind: ClickhouseType) -> str:
    """The type that a value is selected as, spelled as ClickHouse does."""
    bare = kind.bare
    if bare.name == "Array":
        text = f"Array({_cast(ClickhouseType.of(bare.arguments[0]))})"
    elif bare.name in {"Tuple", "Nested"}:
        fields = [f"{quote(label)} {_cast(each)}" for label, each in bare.elements()]
        text = f"Tuple({', '.join(fields)})"
        text = text if bare.name == "Tuple" else f"Array({text})"
    elif bare.name == "Map":
        text = f"Map({', '.join(_cast(ClickhouseType.of(each)) for each in bare.arguments)})"
    elif bare.name == "DateTime64":
        text = f"DateTime64({9 if fraction(bare) > 6 else 6}, 'UTC')"
    else:
        rule = _BY_NAME.get(bare.name)
        text = (rule and rule.cast) or bare.spelling
    return f"Nullable({text})" if kind.nullable and not text.startswith("Nullable(") else text


def _decimal(kind: ClickhouseType) -> tuple[int, int]:
    if kind.name in _DECIMALS:
        return _DECIMALS[kind.name], int(kind.arguments[0])
    precision, scale = (*map(int, kind.arguments), 0, 0)[:2]
    return precision or 10, scale


def fraction(kind: ClickhouseType) -> int:
    """Digits after the second of a DateTime64."""
    return int(kind.arguments[0]) if kind.arguments else 3
