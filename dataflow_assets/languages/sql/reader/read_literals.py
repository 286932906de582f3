"""Numbers, times, intervals and units as they are written."""

from __future__ import annotations

import re
from decimal import Decimal

from dataflow_assets.languages.common.cursor import Cursor
from dataflow_assets.languages.common.tokens import Token, Unreadable
from dataflow_assets.languages.sql.engine.functions.moments import MILLIS, MONTHS, UNITS
from dataflow_assets.languages.sql.engine.texts import parsed_date, parsed_moment, parsed_time
from dataflow_assets.languages.sql.engine.types import (
    BIGINT,
    DATE,
    DOUBLE,
    INT,
    MOST_DIGITS,
    STRING,
    FlinkType,
)
from dataflow_assets.languages.sql.engine.types import MILLIS as SECONDS_TYPE
from dataflow_assets.languages.sql.engine.types import MONTHS as MONTHS_TYPE
from dataflow_assets.languages.sql.reader.syntax import Literal

_OF_INTERVAL = re.compile(r"[+-]?[0-9]{1,12}(\.[0-9]{1,9})?")


def read_number(token: Token, sign: str = "") -> Literal:
    """Reads a whole, exact or floating number. Raises Unreadable."""
    text = token.text
    if "e" in text.lower():
        return Literal(token.place, DOUBLE, float(sign + text))
    if len(text.replace(".", "")) > MOST_DIGITS:
        raise Unreadable(token.place, f"a number has at most {MOST_DIGITS} digits")
    if "." in text:
        value = Decimal(sign + text)
        scale = -int(value.as_tuple().exponent)
        digits = max(len(value.as_tuple().digits), scale, 1)
        return Literal(token.place, FlinkType("DECIMAL", digits, scale), value)
    whole = int(sign + text)
    if not -(2**63) <= whole < 2**63:
        return Literal(token.place, FlinkType("DECIMAL", len(text), 0), Decimal(whole))
    return Literal(token.place, INT if -(2**31) <= whole < 2**31 else BIGINT, whole)


def read_unit(cursor: Cursor, units: tuple[str, ...]) -> Literal:
    """A unit of time, in the singular. Raises Unreadable for another one than these."""
    token = cursor.take()
    word = token.text.upper().removesuffix("S") if token.kind == "word" else ""
    if word not in units:
        raise Unreadable(token.place, f"expected one of {', '.join(units)}, found {token}")
    return Literal(token.place, STRING, word)


def read_time(cursor: Cursor) -> Literal:
    """DATE, TIME or TIMESTAMP with a text behind it. Raises Unreadable."""
    token = cursor.take()
    text = cursor.take().text
    try:
        if token.says("DATE"):
            return Literal(token.place, DATE, parsed_date(text))
        digits = len(text.partition(".")[2])
        if token.says("TIME"):
            return Literal(token.place, FlinkType("TIME", digits), parsed_time(text))
        return Literal(token.place, FlinkType("TIMESTAMP", min(digits, 6)), parsed_moment(text))
    except ValueError as error:
        raise Unreadable(token.place, f"{token.text.upper()}: {error}") from None


def read_interval(cursor: Cursor) -> Literal:
    """`INTERVAL '2' SECOND`, also with `(p)`; several units in one text are refused."""
    place = cursor.take().place
    sign = -1 if cursor.takes("-") else 1
    if cursor.next.kind == "number":
        cursor.fail("the number of an interval is in quotes: write INTERVAL '5' MINUTE")
    text = cursor.text("the number of an interval")
    unit = str(read_unit(cursor, UNITS).value)
    if cursor.takes("("):
        cursor.number("digits")
        cursor.expect(")")
    if cursor.sees("TO"):
        cursor.fail("an interval has one unit: add several of them")
    if not _OF_INTERVAL.fullmatch(text.strip()):
        raise Unreadable(place, "an interval is a number and a unit: INTERVAL '2' SECOND")
    number = Decimal(text.strip())
    if unit in MONTHS:
        return Literal(place, MONTHS_TYPE, sign * int(number) * MONTHS[unit])
    return Literal(place, SECONDS_TYPE, int(sign * number * MILLIS[unit]))
