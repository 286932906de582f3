"""The columns that are read as a frame: what is selected, and the Arrow types of its text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.connectors.postgresql.client import TextLink, quote
from dataflow_assets.connectors.postgresql.frames.frame_table import PostgresqlFrameTable, is_bytes
from dataflow_assets.connectors.postgresql.table import table
from dataflow_assets.connectors.postgresql.types import ARROW
from dataflow_assets.errors import PermanentError
from dataflow_assets.formats.decimals import read_decimals
from dataflow_assets.sdk.table_frames import choose

_COLUMNS = f"""
SELECT attname, {table.TYPE_NAME}, atttypmod FROM pg_attribute
JOIN pg_type t ON t.oid = atttypid JOIN pg_namespace s ON s.oid = t.typnamespace
WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""  # noqa: S608 - our own text
_OTHERWISE = frozenset({"time", "timestamptz", "bytea"})  # as Spark has them, or their text has
_WIDEST = pa.decimal128(38, 18)  # as Spark's own reader takes numeric without precision
LONGEST = 80
_REFUSED = re.compile(r"In CSV column #(\d+): .*?'(.*)'", re.DOTALL)


@dataclass(frozen=True)
class FrameColumn:
    """One column: `type` is what its text is read as, `final` what the frame has."""

    name: str
    kind: str
    select: str
    type: pa.DataType
    final: pa.DataType

    def finish(self, values: pa.Array, place: PostgresqlFrameTable) -> pa.Array:
        """The frame's values. Raises PermanentError for one that its type cannot hold."""
        if self.final == values.type:
            return values
        if is_bytes(self.final):
            decoded = [None if v is None else bytes.fromhex(v[2:]) for v in values.to_pylist()]
            return pa.array(decoded, self.final)
        if pa.types.is_timestamp(self.final) and self.final.tz:
            return pc.assume_timezone(values, "UTC").cast(self.final)
        try:
            return read_decimals(values, self.final)
        except ValueError:
            bad = next(value for value in values.to_pylist() if _overflows(value, self.final))
            raise self.refusal(bad, place) from None

    def refusal(self, value: str, place: PostgresqlFrameTable) -> PermanentError:
        """A value that the frame's type has no room for."""
        kind = "decimal(38, 18)" if self.final == _WIDEST else str(self.final)
        return PermanentError(
            f"column {self.name} of {place.name} holds {value[:LONGEST]}, which a DataFrame's "
            f"{kind} has no room for: leave the column out (metadata `columns` of the input), or "
            "read a view that casts it to text, or to a numeric with precision and scale"
        )


def _overflows(value: str | None, kind: pa.DataType) -> bool:
    try:
        read_decimals(pa.array([value], pa.string()), kind)
    except ValueError:
        return True
    return False


def refusal_of(
    error: pa.ArrowInvalid, columns: Sequence[FrameColumn], place: PostgresqlFrameTable
) -> Exception:
    """Returns what Arrow's reader could not take, by the column's name; another error as it is."""
    match = _REFUSED.search(str(error))
    number = int(match[1]) if match else len(columns)
    return columns[number].refusal(match[2], place) if match and number < len(columns) else error


def read_columns(
    link: TextLink, place: PostgresqlFrameTable, names: Sequence[str] | None
) -> tuple[list[FrameColumn], dict[str, str]]:
    """The chosen columns, and the types of all. Raises PermanentError where there is no table."""
    columns = [_column(*row) for row in link.execute(_COLUMNS, place.name)]
    if not columns:
        raise PermanentError(f"{place.name} does not exist, so there is nothing to read")
    by_name = {column.name: column for column in columns}
    kinds = {column.name: column.kind for column in columns}
    return [by_name[name] for name in choose(place.name, names, by_name)], kinds


def column_kinds(link: TextLink, place: PostgresqlFrameTable) -> dict[str, str]:
    """The types of all columns, by the names under which they are known here."""
    return {name: kind for name, kind, _ in link.execute(_COLUMNS, place.name)}


def _column(name: str, kind: str, modifier: int) -> FrameColumn:
    quoted = quote(name)

    def column(select: str, arrow: pa.DataType, final: pa.DataType | None = None) -> FrameColumn:
        return FrameColumn(name, kind, select, arrow, final or arrow)

    if kind in ARROW and kind not in _OTHERWISE:
        return column(quoted, ARROW[kind])
    if kind == "timestamptz":
        final = pa.timestamp("us", "UTC")
        return column(f"{quoted} AT TIME ZONE 'UTC'", pa.timestamp("us"), final)
    if kind == "numeric":
        decimal = _decimal(modifier)
        return column(quoted, decimal or pa.string(), decimal or _WIDEST)
    if kind == "bytea":
        return column(quoted, pa.string(), pa.binary())
    return column(f"{quoted}::text", pa.string())


def _decimal(modifier: int) -> pa.DataType | None:
    """numeric(p, s), where Spark has such a type; within it no value can overflow."""
    precision, scale = ((modifier - 4) >> 16) & 0xFFFF, (modifier - 4) & 0x7FF
    fits = modifier > 0 and precision <= 38 and scale <= precision
    return pa.decimal128(precision, scale) if fits else None
