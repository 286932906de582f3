"""CSV as Flink's format has it: what Jackson reads and writes with its defaults.

Python's own module reads no cells of more than 128 KiB, and quotes by other rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from dataflow_assets.languages.sql.engine.bytes.json_as_flink import strip_zeros
from dataflow_assets.languages.sql.engine.bytes.layout import FlinkLayout, Spelling
from dataflow_assets.languages.sql.engine.texts import double_text, float_text
from dataflow_assets.languages.sql.engine.types import FlinkType

Cells = list[str | None]
_ESCAPED = {"0": "\0", "n": "\n", "r": "\r", "t": "\t"}
_SURE_TO_QUOTE = 24  # Jackson looks into shorter texts only, and quotes longer ones
_ENDS = "\r\n"


def splitter(layout: FlinkLayout) -> Callable[[str], Cells]:
    """Returns what makes cells of a record's text; made once for each layout.

    They raise ValueError for a quote that is not closed or has something behind it, and for a
    second line: Flink reads the first one, and drops the others in silence.
    """
    one, special = _cell(layout), [sign for sign in (layout.quote, layout.escape, *_ENDS) if sign]

    def split(text: str) -> Cells:
        if any(sign in text for sign in special):
            cells = _split(text, one, layout)
        else:
            cells = list(text.split(layout.delimiter))
        return [None if cell == layout.null_literal else cell for cell in cells]

    return split


def _cell(layout: FlinkLayout) -> re.Pattern[str]:
    """A quoted cell with the blanks behind it, or a plain one."""
    delimiter, escape = re.escape(layout.delimiter), re.escape(layout.escape or "")
    escaped = f"{escape}.|" if escape else ""
    plain = f"(?P<plain>(?:{escaped}[^{delimiter}{escape}\\r\\n]++)*+)"
    if layout.quote is None:
        return re.compile(plain, re.DOTALL)
    quote = re.escape(layout.quote)
    blanks = f"(?:(?!{delimiter})[\\x00-\\x09\\x0b\\x0c\\x0e-\\x20])*"
    quoted = f"{quote}(?P<quoted>(?:{escaped}{quote}{quote}|[^{quote}{escape}]++)*+){quote}{blanks}"
    return re.compile(f"{quoted}|(?!{quote}){plain}", re.DOTALL)


def _split(text: str, cell: re.Pattern[str], layout: FlinkLayout) -> list[str]:
    cells, at = [], 0
    while True:
        match = cell.match(text, at)
        if match is None:
            raise ValueError("not CSV: a quote that is not closed")
        cells.append(_unquote(match, layout))
        at = match.end()
        if at == len(text) or text[at] in _ENDS:
            break
        if text[at] != layout.delimiter:
            raise ValueError("not CSV: neither a delimiter nor the end of the line behind a quote")
        at += 1
    if text[at:].strip():
        raise ValueError("not CSV of one record: it has several lines")
    return cells


def _unquote(match: re.Match[str], layout: FlinkLayout) -> str:
    text, quote = match["plain"], layout.quote
    if text is None:
        text = match["quoted"]
        if quote is not None and layout.escape is None:
            return str(text).replace(quote * 2, quote)
    if layout.escape is None or not text:
        return str(text)
    doubled = f"|{re.escape(quote) * 2}" if quote is not None and match["plain"] is None else ""
    shape = re.compile(f"{re.escape(layout.escape)}(.){doubled}", re.DOTALL)
    return shape.sub(lambda one: _ESCAPED.get(one[1], one[1]) if one[1] else str(quote), text)


def joiner(
    layout: FlinkLayout, spelling: Spelling = "Flink's"
) -> Callable[[Mapping[str, Any]], bytes]:
    """Returns what makes the bytes of a row's JSON values; made once for each task."""
    columns = zip(layout.names, layout.types, strict=True)
    strips = spelling == "Flink's" and not layout.plain_decimals
    writes = [(name, _writer(kind, layout, strips=strips)) for name, kind in columns]
    null = layout.null_literal or ""

    def join(row: Mapping[str, Any]) -> bytes:
        values = ((row[name], write) for name, write in writes)
        cells = [null if value is None else write(value) for value, write in values]
        return layout.delimiter.join(cells).encode()

    return join


def _writer(kind: FlinkType, layout: FlinkLayout, *, strips: bool) -> Callable[[Any], str]:
    """Texts are quoted where they must be, numbers and booleans never."""
    if kind.numeric or kind.kind == "BOOLEAN":
        return lambda value: _item(value, kind, layout, strips=strips)
    if kind.kind == "ARRAY":
        inner, between = kind.items[0], layout.array_delimiter
        return lambda value: _quote(
            between.join(
                "" if one is None else _item(one, inner, layout, strips=strips) for one in value
            ),
            layout,
        )
    return lambda value: _quote(str(value), layout)


def _item(value: Any, kind: FlinkType, layout: FlinkLayout, *, strips: bool) -> str:
    if kind.kind == "BOOLEAN":
        return "true" if value else "false"
    if kind.kind == "DECIMAL":
        plain = f"{Decimal(value):f}" if layout.plain_decimals else str(value)
        return str(strip_zeros(value)) if strips else plain
    if kind.kind in ("FLOAT", "DOUBLE"):
        return float_text(float(value)) if kind.kind == "FLOAT" else double_text(float(value))
    return str(value)


def _quote(text: str, layout: FlinkLayout) -> str:
    """Jackson's loose check: whatever sorts before the delimiter or the quote is suspect."""
    quote, escape = layout.quote, layout.escape
    if quote is None:
        return text
    safe = max(layout.delimiter, quote)
    long = len(text.encode("utf-16-le")) > 2 * _SURE_TO_QUOTE
    if not long and not any(sign <= safe or sign == escape for sign in text):
        return text
    inner = text.replace(escape, escape * 2) if escape else text
    return f"{quote}{inner.replace(quote, quote * 2) if quote != escape else inner}{quote}"
