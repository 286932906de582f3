"""Messages of a table as what the first stage of a query with state sees of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.languages.sql.engine.columns import FlinkColumns, spread_out
from dataflow_assets.languages.sql.engine.expressions import looked_at
from dataflow_assets.languages.sql.engine.function import Environment, Row
from dataflow_assets.languages.sql.engine.input import FlinkMessages, Input, Source
from dataflow_assets.languages.sql.engine.stages import Intake
from dataflow_assets.languages.sql.engine.united import FlinkRows, TableRows
from dataflow_assets.languages.sql.engine.values import Codec, pack
from dataflow_assets.languages.sql.engine.view import ViewPlan
from dataflow_assets.records.record import Record


class Arrived(NamedTuple):
    """The result of a change of a row."""

    key: bytes | None
    """Of a table with a PRIMARY KEY."""
    rows: Sequence[bytes]
    """What the first stage sees of the row; with a `key` none where the row is gone."""
    gone: bool = False
    """Without a `key`: whether the row goes."""


class ArrivedTogether(NamedTuple):
    """The results of the changes of many messages."""

    keys: Sequence[bytes] | None
    """As in Arrived, change by change."""
    seen: Sequence[bytes | None]
    """With `keys` what is kept of the row under each; else of each row that comes."""
    gone: Sequence[bytes | None]
    """Without `keys`: of each row that goes."""
    owners: Sequence[int]
    """With `keys` of each the message that it came of."""


class PrimaryKey:
    """The key of a row of an upsert table."""

    def __init__(self, view: ViewPlan) -> None:
        self._places = [at for at, _ in view.primary]
        self._names = [view.cells[at].name for at in self._places]
        self._codec = Codec([kind for _, kind in view.primary])

    def __call__(self, row: Row) -> bytes:
        """Raises RejectedRecord where a column of it is null."""
        values = [row[at] for at in self._places]
        if None in values:
            name = self._names[values.index(None)]
            raise RejectedRecord("step", f"the column {name} of the PRIMARY KEY is null")
        return self._codec.pack(values)

    def together(self, rows: FlinkColumns) -> list[bytes]:
        """Returns the keys of many rows. Raises ValueError where a column of one is null."""
        columns = [rows.values[at] for at in self._places]
        if any(None in one for one in columns):
            raise ValueError("a column of the PRIMARY KEY is null")
        return self._codec.pack_all(columns, rows.count)


class Arrivals:
    """Messages as what the first stage sees of them; compiled once for each task."""

    def __init__(self, view: ViewPlan, table: TableRows, environment: Environment) -> None:
        source = Source(table.value, table.key, table.cells, view.changelog)
        first, primary = view.stages[0], frozenset(at for at, _ in view.primary)
        used = looked_at(first.expressions, first.shared)
        used = primary | table.cells_for(used)
        self._input = Input(source, environment.local, used)
        self._rows = FlinkRows(table, environment)
        self._intake = Intake(first, environment)
        self._key = PrimaryKey(view) if view.changelog else None
        self._kept = view.keep

    def __call__(self, record: Record) -> list[Arrived]:
        """Change by change; nothing for what changes nothing. Raises RejectedRecord."""
        return [self._arrive(row, gone) for row, gone in self._input(record)]

    def _arrive(self, row: Row, gone: bool) -> Arrived:
        key = None if self._key is None else self._key(row)
        if gone and key is not None:
            return Arrived(key, ())
        seen = (self._intake(one) for one in self._rows(row))
        return Arrived(key, [pack(one) for one in seen if one is not None], gone)

    def together(self, given: FlinkMessages) -> ArrivedTogether:
        """Reads many messages at once.

        Raises an error of any kind where one of the messages is to be looked at by itself.
        """
        read = self._input.together(given)
        rows, owners = self._rows.together(read.rows)
        seen = self._intake.together(rows)
        if self._key is None:
            gone, _ = self._rows.together(read.gone)
            return ArrivedTogether(None, seen, self._intake.together(gone), ())
        if rows is not read.rows:
            seen = self._of_owners(seen, owners, read.rows.count)
        keys = self._key.together(read.rows)
        if read.gone_places:
            places, count = [*read.places, *read.gone_places], len(read.owners)
            keys += self._key.together(read.gone)
            keys, seen = spread_out(keys, places, count), spread_out(seen, read.places, count)
        return ArrivedTogether(keys, seen, (), read.owners)

    def _of_owners(
        self, seen: Sequence[bytes | None], owners: Sequence[int], count: int
    ) -> list[bytes | None]:
        by_owner: list[list[bytes]] = [[] for _ in range(count)]
        for at, one in zip(owners, seen, strict=True):
            if one is not None:
                by_owner[at].append(one)
        return [self._kept(one) for one in by_owner]
