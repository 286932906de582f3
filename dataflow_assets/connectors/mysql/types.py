"""MySQL's and MariaDB's types and the Arrow types that they travel as: one table for all uses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.contracts import Kind, Note, TypeRow, checked_name
from dataflow_assets.errors import PermanentError
from dataflow_assets.formats.iso_forms import has_more_digits
from dataflow_assets.sdk.types.comments import text_kind
from dataflow_assets.sdk.types.table import TypeRule, typed_field

MYSQL_TYPE = b"dataflow.mysql.type"
"""Field metadata: the column's own type, for a sink of the same system."""
_TEXT = pa.string()
GEOMETRIES = frozenset(
    f"{kind}{end}" for kind in ("", "multi") for end in ("point", "linestring", "polygon")
) | {"geometry", "geomcollection", "geometrycollection"}
_NO_DATE = "0000-00-00 is read as null: it is no date"
RULES = (
    TypeRule(("tinyint",), pa.int8(), note="boolean too, which is a number here"),
    TypeRule(("tinyint unsigned",), pa.uint8()),
    TypeRule(("smallint",), pa.int16()),
    TypeRule(("smallint unsigned",), pa.uint16()),
    TypeRule(("mediumint", "int"), pa.int32()),
    TypeRule(("mediumint unsigned", "int unsigned"), pa.uint32()),
    TypeRule(("bigint",), pa.int64()),
    TypeRule(("bigint unsigned",), pa.uint64()),
    TypeRule(("year",), pa.int16()),
    TypeRule(("float",), pa.float32(), cast="({} + 0e0)", note="to its last digit"),
    TypeRule(("double",), pa.float64()),
    TypeRule(("date",), pa.date32(), note=_NO_DATE),
    TypeRule(("datetime",), pa.timestamp("us"), note=_NO_DATE),
    TypeRule(("timestamp",), pa.timestamp("us", "UTC"), note="whatever zone the server has"),
    TypeRule(("time",), _TEXT, Kind.TEXT, note="from -838 to 838 hours"),
    TypeRule(("char", "varchar"), _TEXT, note="of any character set, as UTF-8"),
    TypeRule(("tinytext", "text", "mediumtext", "longtext"), _TEXT),
    TypeRule(("enum", "set"), _TEXT, Kind.TEXT, note="the names, not their numbers"),
    TypeRule(("json",), _TEXT, Kind.JSON, note="MariaDB's too: a text that its check calls JSON"),
    TypeRule(("uuid",), _TEXT, Kind.UUID),
    TypeRule(("inet4", "inet6"), _TEXT, Kind.TEXT),
    TypeRule(("binary",), pa.binary(), note="filled up with zero bytes"),
    TypeRule(("varbinary",), pa.binary()),
    TypeRule(("tinyblob", "blob", "mediumblob", "longblob"), pa.binary()),
    TypeRule(tuple(sorted(GEOMETRIES)), _TEXT, Kind.TEXT, "ST_AsText({})", "well-known text"),
)
_BY_NAME = {name: rule for rule in RULES for name in rule.names}
_BITS = "CAST({} AS UNSIGNED)"
_SPELLING = re.compile(r"(\w+)(?:\((.*)\))?( unsigned)?( zerofill)?", re.DOTALL | re.IGNORECASE)
_LONGEST = 38  # digits of a decimal of Arrow
_MEMBER = re.compile(r"'((?:[^']|'')*)'")
_EXAMPLES = (
    ("bit(1)", ""),
    ("bit(8)", "2 to 64 bits, as a number"),
    ("decimal(10,2)", "up to 38 digits"),
    ("decimal(65,30)", "more than 38 digits"),
)


@dataclass(frozen=True)
class MysqlType:
    """A type as `information_schema.columns` spells it, taken apart."""

    spelling: str
    name: str
    """With ` unsigned` where that makes another type."""
    numbers: tuple[int, ...] = ()
    """Its length, or its precision and scale."""

    @classmethod
    def of(cls, spelling: str) -> Self:
        found = _SPELLING.match(spelling)
        name, inner, unsigned = found.groups()[:3] if found else (spelling, None, None)
        name = name.lower()
        digits = re.fullmatch(r"\d+(,\d+)?", inner or "")
        numbers = tuple(map(int, digits[0].split(","))) if digits else ()
        plain = f"{name} unsigned"
        return cls(spelling, plain if unsigned and plain in _BY_NAME else name, numbers)

    @property
    def digits(self) -> int | None:
        """Returns how many digits of a second it keeps; None where it holds no point in time."""
        if self.name == "date":
            return 0
        return (*self.numbers, 0)[0] if self.name in {"datetime", "timestamp"} else None

    @property
    def rule(self) -> TypeRule:
        """Raises PermanentError where the type is not known."""
        if self.name == "bit":
            arrow = pa.bool_() if self.numbers in {(), (1,)} else pa.uint64()
            return TypeRule(("bit",), arrow, cast=_BITS)
        if self.name == "decimal":
            return _decimal(*(*self.numbers, 0)[:2])
        rule = _BY_NAME.get(self.name)
        if rule is None:
            raise PermanentError(
                f"type {self.spelling} has no form outside of the database; give a `query` that "
                "casts such a column, or leaves it out"
            )
        return rule


def _decimal(precision: int, scale: int) -> TypeRule:
    if precision > _LONGEST:
        return TypeRule(("decimal",), _TEXT, Kind.NUMERIC)
    return TypeRule(("decimal",), pa.decimal128(precision, scale))


def rows() -> tuple[TypeRow, ...]:
    """Returns the types as docs/types.md lists them."""
    others = (TypeRow(name, field("", name), note) for name, note in _EXAMPLES)
    return (*(rule.row() for rule in RULES), *others)


def field(name: str, spelling: str, *, nullable: bool = True) -> pa.Field:
    """Returns the Arrow field of a column. Raises PermanentError where there is none."""
    kind = MysqlType.of(spelling)
    notes: dict[bytes, bytes] = {MYSQL_TYPE: spelling.encode()}
    if kind.name in {"varchar", "char"} and kind.numbers:
        notes[Note.MAX_LENGTH] = str(kind.numbers[0]).encode()
    rule = kind.rule
    return typed_field(checked_name(name), rule.arrow, rule.kind, nullable=nullable, notes=notes)


def select_expression(name: str, spelling: str) -> str:
    """Returns the SQL of a quoted column whose values are read in full."""
    return (MysqlType.of(spelling).rule.cast or "{}").format(name)


def sink_field(name: str, spelling: str) -> pa.Field | None:
    """Returns the Arrow field of a sink's column; None where no value has a form for it."""
    kind = MysqlType.of(spelling)
    if kind.name == "tinyint" and kind.numbers == (1,):
        notes = {MYSQL_TYPE: spelling.encode()}
        return typed_field(checked_name(name), pa.bool_(), notes=notes)  # as BOOLEAN is spelled
    if kind.name not in _BY_NAME.keys() | {"bit", "decimal"}:
        return None
    found = field(name, spelling)
    digits = () if kind.digits is None or kind.name == "date" else ((Note.DIGITS, kind.digits),)
    notes = {**found.metadata, **{note: str(value).encode() for note, value in digits}}
    return found.with_metadata(notes)


def find_altered(column: pa.Field, values: pa.Array) -> tuple[pa.Array, str] | None:
    """Returns which values the server would store as others without a word, and the reason."""
    kind = MysqlType.of(column.metadata[MYSQL_TYPE].decode())
    if kind.name in {"enum", "set"}:  # a number that is no member is taken for the place of one
        members = [found.replace("''", "'") for found in _MEMBER.findall(kind.spelling)]
        number = pc.match_substring_regex(values, r"^[\s\v]*[+-]?\d+[\s\v]*$")
        known = pc.is_in(pc.utf8_rtrim(values, " "), pa.array(members, values.type))
        wrong = pc.and_(number, pc.invert(known)).fill_null(False)
        return wrong, f"not one of the values of column {column.name}"
    digits = (*kind.numbers, 0)[0] if kind.name == "time" else int(Note.DIGITS.of(column) or 6)
    if kind.name == "time":
        wrong = pc.match_substring_regex(values, rf"\.\d{{{digits}}}\d*[1-9]")
    elif digits < 6:
        wrong = has_more_digits(values, digits)
    else:
        return None
    reason = f"more digits of a second than column {column.name} keeps ({digits})"
    return wrong.fill_null(False), reason


def insertion(column: pa.Field) -> str:
    """Returns the SQL that makes a column's value of a literal, `{}`."""
    spelling = column.metadata[MYSQL_TYPE].decode()
    is_geometry = MysqlType.of(spelling).name in RULES[-1].names
    return "ST_GeomFromText({})" if is_geometry else "{}"


def declaration(column: pa.Field) -> str:
    """Returns the narrowest type that loses nothing of an interchange field's values."""
    if hint := (column.metadata or {}).get(MYSQL_TYPE):
        return str(hint.decode()) if column.type != pa.int8() else "TINYINT"
    if text_kind(column, inside=False) == Kind.JSON or pa.types.is_nested(column.type):
        return JSON
    if pa.types.is_decimal(column.type):
        precision, scale = column.type.precision, column.type.scale
        fits = 0 <= scale <= _MOST_SCALE and precision <= _MOST_DIGITS
        return f"DECIMAL({precision}, {scale})" if fits else TEXT
    if pa.types.is_timestamp(column.type):
        return "DATETIME(6)"
    return _DECLARED.get(column.type, TEXT)


JSON, TEXT, BLOB = "JSON", "LONGTEXT", "LONGBLOB"
UNBOUNDED = {TEXT: "VARCHAR", BLOB: "VARBINARY"}
"""Types that are no key, and which type is one."""
_MOST_DIGITS, _MOST_SCALE = 65, 30
_DECLARED = {
    **{rule.arrow: rule.names[-1].upper() for rule in RULES if rule.kind is None},
    pa.string(): TEXT,
    pa.large_string(): TEXT,
    pa.binary(): BLOB,
    pa.large_binary(): BLOB,
    pa.bool_(): "BOOLEAN",
    pa.int16(): "SMALLINT",
    pa.timestamp("us"): "DATETIME(6)",
    pa.time64("us"): "TIME(6)",
}
