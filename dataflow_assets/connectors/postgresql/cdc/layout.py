"""A table's columns: as the stream announces them, and as a snapshot selects them."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import pyarrow as pa

from dataflow_assets.connectors.postgresql.cdc.options import Place, PostgresqlCdcOptions
from dataflow_assets.connectors.postgresql.cdc.reader import HEADER
from dataflow_assets.connectors.postgresql.cdc.text_values import fit_column
from dataflow_assets.connectors.postgresql.client import TextLink, qualified_name
from dataflow_assets.connectors.postgresql.source.fitted import Fitted
from dataflow_assets.connectors.postgresql.source.relation import SourceColumn, typed_columns
from dataflow_assets.connectors.postgresql.source.types import TypeOf
from dataflow_assets.contracts import Note

# What the catalogue says now; the table may have changed since, or be gone.
_DIMENSIONS = """
SELECT attname, attndims, attisdropped OR attgenerated <> '',
       CASE WHEN atthasmissing THEN (attmissingval::text::text[])[1] END FROM pg_attribute
WHERE attrelid = $1::oid AND attnum > 0 ORDER BY attnum
"""
_KEY = """
SELECT a.attname, a.attnum::int FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid
WHERE i.indrelid = $1::oid AND i.indisprimary
  AND a.attnum = ANY ((i.indkey::int2[])[:i.indnkeyatts - 1])
ORDER BY array_position(i.indkey::int2[], a.attnum)
"""
_DEFERRABLE = """
SELECT ARRAY(SELECT attname::text FROM pg_attribute a
             WHERE a.attrelid = i.indrelid
               AND a.attnum = ANY ((i.indkey::int2[])[:i.indnkeyatts - 1]) ORDER BY attnum)
FROM pg_index i WHERE i.indrelid = $1::oid AND i.indisunique AND NOT i.indimmediate
  AND i.indexprs IS NULL AND i.indpred IS NULL AND NOT EXISTS (
      SELECT FROM pg_index p WHERE p.indrelid = i.indrelid AND p.indisprimary AND p.indimmediate)
ORDER BY NOT i.indisprimary, i.indexrelid
"""
_COLUMNS = """
SELECT attname, atttypid::text, atttypmod, attnotnull, attndims FROM pg_attribute
WHERE attrelid = $1::oid AND attname = ANY ($2::text[]) AND NOT attisdropped ORDER BY attnum
"""


@dataclass(frozen=True)
class LoggedColumn:
    """One column of a table."""

    name: str
    type: TypeOf
    identifies: bool
    """Whether it names rows: in the log by the replica identity, of which alone the log has the
    values of rows that are deleted; in rows that are loaded first by the primary key."""
    filled: str | None = None
    """What rows have in it that are older than the column, of which the log has nothing."""

    @property
    def field(self) -> pa.Field:
        return self._mark(self.type.field(self.name))

    def fit(self, texts: pa.Array) -> Fitted:
        fitted = fit_column(texts, self.type, self.name)
        return replace(fitted, field=self._mark(fitted.field))

    def _mark(self, field: pa.Field) -> pa.Field:
        if self.filled is None:
            return field
        return field.with_metadata({**(field.metadata or {}), Note.FILLED: self.filled.encode()})


@dataclass(frozen=True)
class CdcLayout:
    """A table as it was when its rows were changed, or selected."""

    place: Place
    columns: tuple[LoggedColumn, ...]
    """All that travel."""
    key: tuple[str, ...]
    """What names a row: the primary key; without one what the log identifies rows by."""
    wanted: tuple[int, ...]
    """Indexes of the columns to read."""
    deferred: tuple[int, ...] = ()
    """Indexes of the columns of a key that two rows may have inside a transaction."""

    @property
    def name(self) -> str:
        return ".".join(self.place)

    @property
    def sql(self) -> str:
        return qualified_name(*self.place)

    @property
    def read(self) -> tuple[LoggedColumn, ...]:
        return tuple(self.columns[index] for index in self.wanted)

    @property
    def key_indexes(self) -> list[int]:
        return [index for index, column in enumerate(self.columns) if column.name in self.key]


def current_layout(
    link: TextLink, source: PostgresqlCdcOptions, place: Place, oid: int, names: Sequence[str]
) -> CdcLayout:
    """A table's layout as of now, with the columns that are published.

    Called inside tasks for a part of a snapshot, and where a span has no row to tell the columns.
    """
    columns = typed_columns(link, link.execute(_COLUMNS, oid, list(names)))
    key = tuple(name for name, _ in link.execute(_KEY, oid))
    logged = tuple(LoggedColumn(one.name, one.type, one.name in key) for one in columns)
    return CdcLayout(place, logged, key, _read_columns(source, [one.name for one in columns]))


@dataclass(frozen=True)
class Announcement:
    """A message of pgoutput about a table: what the next changes of it look like."""

    oid: int
    place: Place
    columns: tuple[tuple[str, str, int, bool], ...]
    """Name, oid of the type, its modifier, and whether it identifies rows."""

    @classmethod
    def parse(cls, message: bytes | memoryview) -> Announcement:
        data = bytes(message[HEADER + 1 :])
        schema, _, rest = data[4:].partition(b"\0")
        name, _, rest = rest.partition(b"\0")
        columns, rest = [], rest[3:]
        while rest:
            column, _, after = rest[1:].partition(b"\0")
            mod = int.from_bytes(after[4:8], "big", signed=True)
            kind = str(int.from_bytes(after[:4], "big"))
            columns.append((column.decode(), kind, mod, bool(rest[0] & 1)))
            rest = after[8:]
        place = schema.decode() or "pg_catalog", name.decode()
        return cls(int.from_bytes(data[:4], "big"), place, tuple(columns))

    def layout(
        self, link: TextLink, source: PostgresqlCdcOptions, known: Sequence[int] | None = None
    ) -> CdcLayout:
        """With the types that the server knows by their numbers.

        `known`: the columns of the primary key, as the position says them; None: it says nothing.
        """
        ever: list[tuple[str, int, bool, str | None]] = link.execute(_DIMENSIONS, self.oid)
        filled = {name: value for name, *_, value in ever}
        # Only under REPLICA IDENTITY FULL all columns but those are in the log.
        chosen = not all(identifies for *_, identifies in self.columns)
        now = {name: chosen or gone for name, _, gone, _ in ever}
        logged = [name for name, *_ in self.columns]
        depths = _dimensions(ever, logged, now)
        rows = [(n, kind, mod, False, depths.get(n, 0)) for n, kind, mod, _ in self.columns]
        types: tuple[SourceColumn, ...] = typed_columns(link, rows)
        columns = tuple(
            LoggedColumn(one.name, one.type, identifies, filled.get(one.name))
            for one, (*_, identifies) in zip(types, self.columns, strict=True)
        )
        primary: list[tuple[str, int]] = link.execute(_KEY, self.oid)
        key = () if _is_another(primary, known) else tuple(name for name, _ in primary)
        key = former_names(key, logged, now)
        key = key or tuple(one.name for one in columns if one.identifies)
        deferred = () if chosen else _deferrable_key(link, self.oid, logged)
        return CdcLayout(self.place, columns, key, _read_columns(source, logged), deferred)


def _dimensions(
    ever: Sequence[tuple[str, int, bool, str | None]],
    logged: Sequence[str],
    now: Mapping[str, bool],
) -> dict[str, int]:
    declared = {name: depth for name, depth, *_ in ever if depth}
    former = {name: former_names((name,), logged, now) for name in declared}
    return {one: declared[name] for name, names in former.items() for one in names}


def _deferrable_key(link: TextLink, oid: int, names: Sequence[str]) -> tuple[int, ...]:
    for (key,) in link.execute(_DEFERRABLE, oid):
        if set(key) <= set(names):
            return tuple(names.index(name) for name in key)
    return ()


def _is_another(primary: Sequence[tuple[str, int]], known: Sequence[int] | None) -> bool:
    return known is not None and sorted(number for _, number in primary) != sorted(known)


def former_names(
    key: Sequence[str], logged: Sequence[str], now: Mapping[str, bool]
) -> tuple[str, ...]:
    """Returns what the columns of a key were called in the log; none where that is not certain.

    No column ever moves, and none that is added comes before another one. So the shift of a column
    (how many columns lie before it that the log lacks) never falls from one column to the next, and
    a column between two of the same shift has that shift too, whatever it is called by now.

    Called by the reader of the log, once for each announcement of a table.

    Args:
        key: names as they are now.
        logged: all columns as the log announces them, in the order of the table.
        now: all columns that the table ever had, dropped ones under the name that the server gave
            them, in the same order, and whether the log may lack a column and have one behind.

    Returns:
        As many names as the key has, or none.
    """
    names, most = [*now], len(now) - len(logged)
    missing_before = [0, *accumulate(now.values())]  # before each column
    shifts = _certain_shifts(logged, names)
    least = accumulate((shifts.get(index, 0) for index in range(len(logged))), max)
    backwards = accumulate((shifts.get(index, most) for index in reversed(range(len(logged)))), min)
    bounds = zip(logged, least, reversed([*backwards]), strict=True)
    former = {
        names[i + low]: name
        for i, (name, low, high) in enumerate(bounds)
        if low == high <= missing_before[i + low]
    }
    found = [former.get(name, "") for name in key]
    reused = any(before != name and before in now for before, name in zip(found, key, strict=True))
    return () if reused or "" in found else tuple(found)


def _certain_shifts(logged: Sequence[str], now: Sequence[str]) -> dict[int, int]:
    """Shifts of the columns that have kept their names, by their index in the log.

    A name may have been used again: it counts where it belongs to every longest row of names whose
    shifts do not fall.
    """
    places = {name: place for place, name in enumerate(now)}
    shifts = {i: places[name] - i for i, name in enumerate(logged) if name in places}
    possible = {i: by for i, by in shifts.items() if 0 <= by <= len(now) - len(logged)}
    before = _lengths([*possible.values()])
    behind = _lengths([-by for by in reversed(possible.values())])[::-1]
    longest = max(before, default=0)
    ranks = [one if one + other > longest else 0 for one, other in zip(before, behind, strict=True)]
    alone = {rank for rank, times in Counter(ranks).items() if times == 1 and rank}
    return {i: possible[i] for i, rank in zip(possible, ranks, strict=True) if rank in alone}


def _lengths(values: Sequence[int]) -> list[int]:
    """For each value the length of the longest sequence that does not fall and ends with it."""
    last, lengths = list[int](), list[int]()
    for value in values:
        at = bisect_right(last, value)
        last[at : at + 1] = [value]
        lengths.append(at + 1)
    return lengths


def _read_columns(source: PostgresqlCdcOptions, names: Sequence[str]) -> tuple[int, ...]:
    return tuple(index for index, name in enumerate(names) if source.reads(name))
