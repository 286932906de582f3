"""Types as DDL and CAST write them."""

from __future__ import annotations

from dataflow_assets.errors.likely_names import did_you_mean_or
from dataflow_assets.languages.common.cursor import Cursor
from dataflow_assets.languages.common.tokens import Unreadable
from dataflow_assets.languages.sql.engine.types import LONGEST, MOST_DIGITS, FlinkType

_PLAIN = ("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DATE")
_ALIASES = {"INTEGER": "INT", "STRING": "VARCHAR", "BYTES": "VARBINARY", "DEC": "DECIMAL"}
_OTHERS = [
    "DECIMAL",
    "NUMERIC",
    "CHAR",
    "VARCHAR",
    "BINARY",
    "VARBINARY",
    "TIME",
    "TIMESTAMP",
    "TIMESTAMP_LTZ",
    "ARRAY",
    "MAP",
    "ROW",
]
NAMES = (*_PLAIN, *_ALIASES, *_OTHERS)
_ELSEWHERE = {
    "TEXT": "STRING",
    "NVARCHAR": "STRING",
    "VARCHAR2": "STRING",
    "UUID": "STRING",
    "JSON": "STRING",
    "JSONB": "STRING",
    "BOOL": "BOOLEAN",
    "INT2": "SMALLINT",
    "INT4": "INT",
    "INT8": "BIGINT",
    "INT32": "INT",
    "INT64": "BIGINT",
    "LONG": "BIGINT",
    "SERIAL": "BIGINT",
    "REAL": "FLOAT",
    "FLOAT32": "FLOAT",
    "FLOAT64": "DOUBLE",
    "NUMBER": "DECIMAL(38, 10)",
    "MONEY": "DECIMAL(19, 4)",
    "DATETIME": "TIMESTAMP(6)",
    "TIMESTAMPTZ": "TIMESTAMP_LTZ(6)",
    "BLOB": "BYTES",
    "BYTEA": "BYTES",
}
"""Types of other databases, and what is written here."""
_MICROS = 6


def read_type(cursor: Cursor) -> tuple[FlinkType, bool]:
    """A type, and whether its values may be null. Raises Unreadable."""
    kind = _type(cursor)
    while cursor.next.says("ARRAY") and not cursor.ahead(1).says("<"):
        cursor.take()
        kind = FlinkType("ARRAY", items=(kind,))
    if cursor.takes("NOT", "NULL"):
        return kind, False
    cursor.takes("NULL")
    return kind, True


def _type(cursor: Cursor) -> FlinkType:
    token = cursor.next
    if token.kind != "word":
        cursor.fail(f"expected a type, found {token}")
    cursor.take()
    word = token.text.upper()
    if word in ("STRING", "BYTES"):
        return FlinkType(_ALIASES[word], LONGEST)
    kind = _ALIASES.get(word, word)
    if kind == "DOUBLE":
        cursor.takes("PRECISION")
    if kind in _PLAIN:
        return FlinkType(kind)
    if kind in ("DECIMAL", "NUMERIC"):
        return _decimal(cursor)
    if kind in ("CHAR", "VARCHAR"):
        return FlinkType(kind, _length(cursor))
    if kind in ("BINARY", "VARBINARY"):
        return FlinkType("VARBINARY", _length(cursor), fixed=kind == "BINARY")
    if kind in ("TIME", "TIMESTAMP", "TIMESTAMP_LTZ"):
        return _moment(cursor, kind)
    if kind in ("ARRAY", "MAP", "ROW"):
        return _nested_type(cursor, kind)
    reason = "is not supported" if word in ("MULTISET", "RAW", "VARIANT") else "is not a type"
    instead = f"write {_ELSEWHERE[word]}" if word in _ELSEWHERE else None
    advice = instead or did_you_mean_or(word, NAMES, "docs/reference/sql.md lists all types")
    raise Unreadable(token.place, f"{word} {reason}; {advice}")


def _length(cursor: Cursor) -> int:
    if not cursor.takes("("):
        return 1
    length = cursor.number("a length")
    cursor.expect(")")
    return length


def _decimal(cursor: Cursor) -> FlinkType:
    place = cursor.place
    digits, scale = 10, 0
    if cursor.takes("("):
        digits = cursor.number("the digits")
        if cursor.takes(","):
            scale = cursor.number("the digits of the fraction")
        cursor.expect(")")
    if not 1 <= digits <= MOST_DIGITS or scale > digits:
        raise Unreadable(place, f"a DECIMAL has 1 to {MOST_DIGITS} digits, its fraction no more")
    return FlinkType("DECIMAL", digits, scale)


def _moment(cursor: Cursor, kind: str) -> FlinkType:
    place = cursor.place
    digits = 0 if kind == "TIME" else _MICROS
    if cursor.takes("("):
        digits = cursor.number("the digits of a second")
        cursor.expect(")")
    if cursor.takes("WITH", "LOCAL", "TIME", "ZONE"):
        kind = "TIMESTAMP_LTZ"
    elif cursor.sees("WITH", "TIME", "ZONE"):
        cursor.fail("WITH TIME ZONE is not supported: write TIMESTAMP_LTZ, an instant")
    else:
        cursor.takes("WITHOUT", "TIME", "ZONE")
    if digits > _MICROS:
        raise Unreadable(place, f"at most {_MICROS} digits of a second are kept, not {digits}")
    return FlinkType(kind, digits)


def _nested_type(cursor: Cursor, kind: str) -> FlinkType:
    closing = ")" if kind == "ROW" and cursor.next.says("(") else ">"
    cursor.expect("<", "(") if kind == "ROW" else cursor.expect("<")
    names, items = [], []
    while True:
        if kind == "ROW":
            names.append(cursor.name("the name of a field"))
        items.append(read_type(cursor)[0])
        if kind == "ROW" and cursor.takes("COMMENT"):
            cursor.text("the comment")
        if not cursor.takes(","):
            break
    cursor.expect(closing)
    if len(items) != {"ARRAY": 1, "MAP": 2}.get(kind, len(items)):
        cursor.fail(f"{kind} takes {'one type' if kind == 'ARRAY' else 'two types'}")
    return FlinkType(kind, items=tuple(items), names=tuple(names))
