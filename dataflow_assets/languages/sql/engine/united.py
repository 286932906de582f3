"""The tables whose rows a query reads: one, or several with UNION ALL between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.languages.sql.engine.bytes.layout import FlinkLayout
from dataflow_assets.languages.sql.engine.columns import FlinkColumns, take_places
from dataflow_assets.languages.sql.engine.expressions import Expression, looked_at, program
from dataflow_assets.languages.sql.engine.function import NO_VALUE, Environment, Row, holds
from dataflow_assets.languages.sql.engine.plan import Cell, metadata_of
from dataflow_assets.languages.sql.engine.unnest import FlinkUnnested, Unnest, origins_of, read_for


@dataclass(frozen=True)
class TableRows:
    """The part of a query that reads one table. Made when a file is loaded, sent to tasks."""

    value: FlinkLayout
    key: FlinkLayout | None
    cells: tuple[Cell, ...]
    unnests: tuple[Unnest, ...] = ()
    where: Expression | None = None
    """Of the rows that UNION ALL takes."""
    selected: tuple[Expression, ...] | None = None
    """What they have in common with the rows of the other tables; None: the row as it is."""
    shared: tuple[Expression, ...] = ()
    """What `where` and `selected` need, computed once for a row; each may need those before it."""

    def metadata(self) -> frozenset[str]:
        """The metadata of messages that its rows are made of."""
        return metadata_of(self.cells, key=self.key is not None)

    def cells_for(self, places: frozenset[int]) -> frozenset[int]:
        """The cells to read, where these columns of its rows are looked at."""
        return read_for(self.unnests, self._inside(places, also=self.where))

    def origins_of(self, places: frozenset[int]) -> frozenset[int]:
        """The cells that columns of its rows are made of."""
        return origins_of(self.unnests, self._inside(places, also=None))

    def _inside(self, places: frozenset[int], also: Expression | None) -> frozenset[int]:
        if self.selected is None:
            return places
        used = [self.selected[at] for at in places] + ([] if also is None else [also])
        return looked_at(used, self.shared)


class FlinkRows:
    """A row of a table as the rows that the query sees; compiled once for each task."""

    def __init__(self, table: TableRows, environment: Environment) -> None:
        compiled = program(table.shared, environment)
        self._table = table
        self._unnested = FlinkUnnested(table.unnests, environment)
        self._where = None if table.where is None else compiled(table.where)
        self._selected = [compiled(one) for one in table.selected or ()]

    def __call__(self, row: Row) -> Sequence[Row]:
        """Raises RejectedRecord where something cannot be computed."""
        rows = self._unnested(row)
        if self._table.selected is None:
            return rows
        return [self._of(one) for one in rows if self._holds(one)]

    def together(self, rows: FlinkColumns) -> tuple[FlinkColumns, Sequence[int]]:
        """Computes many rows, and for each that comes out the number of the one that went in.

        Raises an error of any kind where something cannot be computed.
        """
        found, owners = self._unnested.together(rows)
        if self._table.selected is None:
            return found, owners
        if self._where is not None:
            there = found.of(self._table.where, self._where)
            places = [at for at, value in enumerate(there) if value is True]
            found, owners = found.take(places), take_places(owners, places)
        pairs = zip(self._table.selected, self._selected, strict=True)
        return FlinkColumns(found.count, [found.of(*one) for one in pairs]), owners

    def _holds(self, row: Row) -> bool:
        return self._where is None or holds(self._where, row, "WHERE")

    def _of(self, row: Row) -> Row:
        try:
            return [one(row) for one in self._selected]
        except NO_VALUE as error:
            raise RejectedRecord("step", f"SELECT: {error}") from None
