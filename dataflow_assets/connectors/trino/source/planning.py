"""The questions of planning, asked of Trino: bounds, borders, counts, comparisons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dataflow_assets.connectors.trino.client import Client, quote
from dataflow_assets.connectors.trino.source import upper_bound
from dataflow_assets.connectors.trino.source.relation import Relation, SourceColumn
from dataflow_assets.connectors.trino.table.table import Column
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.polling import NOTHING, Pair, PolledPosition, Rows, ticks

_NOW = "SELECT to_iso8601(CAST(current_timestamp(6) AS timestamp(6)))"
_TEXTS = frozenset({"varchar", "char"})
_WIDTH = 8  # bytes of a number or a time; what is compound counts as the length of its JSON


@dataclass(frozen=True)
class PolledTable:
    """A relation that is asked. `title`: what is read, for people."""

    client: Client
    relation: Relation
    title: str

    @property
    def identity(self) -> str | None:
        """The table's id; None for a query."""
        return self.relation.identity

    @property
    def wholly(self) -> bool:
        return self.relation.order is None

    @property
    def tracks(self) -> bool:
        """True where a change column orders the rows, before the order column."""
        return self.relation.change is not None

    @property
    def first(self) -> str:
        """The name of the first column of the order."""
        column = self.relation.change or self.relation.order
        return column.name if column else ""

    def now(self) -> str:
        return str(self.client.value(_NOW))

    def newest(self) -> Pair:
        """The last pair there is now, none of a tick of the coordinator's clock that still runs."""
        change, order = self.relation.change, self._order
        if change is None:
            return None, self._last(order, self._until_now(order))
        latest = self._last(change, self._until_now(change))
        if latest is None:
            return NOTHING
        return latest, self._last(order, f"{change.quoted} = {change.value(latest)}")

    def has_rows(self) -> bool:
        """Returns whether there is any row at all."""
        return bool(self.client.rows(f"SELECT 1 {self._from()} LIMIT 1"))

    def unordered(self) -> int:
        """Returns how many rows have no place in the order."""
        column = self.relation.change or self._order
        return int(self.client.value(f"SELECT count(*) {self._from(f'{column.rank} IS NULL')}"))

    def is_before(self, one: Pair, other: Pair) -> bool:
        """Returns whether a pair comes before another; a missing value comes before every other."""
        if one == other:
            return False
        return bool(self.client.value(f"SELECT {self.relation.conditions.before(one, other)}"))

    def estimate(self, rows: Rows) -> int:
        """Returns how many rows there are: counted, which reads two columns."""
        return self.count(rows)

    def count(self, rows: Rows) -> int:
        where = self.relation.conditions.of(rows)
        return int(self.client.value(f"SELECT count(*) {self._from(where)}"))

    def size(self, rows: Rows) -> tuple[int, int]:
        """Returns how many rows there are, and how many bytes their values have."""
        where = self.relation.conditions.of(rows)
        widths = " + ".join(map(_width, self.relation.columns))
        found = self.client.rows(f"SELECT count(*), sum({widths}) {self._from(where)}")
        return int(found[0][0]), int(found[0][1] or 0)

    def age(self, rows: Rows) -> float | None:
        """Seconds since the oldest of the rows was changed; None where nothing tells."""
        change = self.relation.change or self._order
        if change.digits is None:
            return None
        zoned = f"CAST(min({change.quoted}) AS timestamp(3) with time zone)"
        seconds = f"to_unixtime(current_timestamp) - to_unixtime({zoned})"
        found = self.client.value(
            f"SELECT {seconds} {self._from(self.relation.conditions.of(rows))}"
        )
        return None if found is None else max(0.0, float(found))

    def key(self, rows: Rows, most: int) -> str | None:
        """The last order value of the first `most` rows; None where there are no more."""
        where = f"({self.relation.conditions.of(rows)}) AND {self._order.rank} IS NOT NULL"
        found = self._placed([self._order], where, most)
        return None if found is None else found[0]

    def border(self, rows: Rows, most: int) -> Pair | None:
        """The last pair of the first `most` rows; None where there are no more."""
        where, change = self.relation.conditions.of(rows), self.relation.change
        if change is None:
            found = self._placed([self._order], where, most)
            return None if found is None else (None, found[0])
        found = self._placed([change, self._order], where, most)
        return None if found is None else (found[0], found[1])

    def before(self, time: str) -> str | None:
        """The last change value before a time; None where changes have none."""
        change = self.relation.change
        return None if change is None else upper_bound.before(time, change)

    def at(self, time: str) -> str:
        """The last change value that is not behind a time."""
        change = self.relation.change
        found = None if change is None else upper_bound.at(time, change)
        if found is None:
            raise PermanentError(
                "the checkpoint has a time, and the changeTrackingColumn of "
                f"{self.title} is not a time" + (f": it is {change.column.type}" if change else "")
            )
        return found

    def notes(self, position: PolledPosition) -> Iterator[str]:  # noqa: ARG002 - what others need
        """Returns what a person should know about rows that wait, or may be missed."""
        change, order = self.relation.change, self.relation.order
        if change is None or order is None:
            return
        if change.digits is None:
            yield ticks.ties(change.name, change.column.type, order.name)
        width = upper_bound.tick(self.client, self.relation, change)
        yield from ticks.waiting(change.name, width, "use a timestamp column")

    def _until_now(self, column: SourceColumn) -> str:
        upto = upper_bound.upto(self.client, self.relation, column)
        return f"{column.quoted} < {column.value(upto)}" if upto else ""

    def _placed(self, columns: list[SourceColumn], where: str, most: int) -> list[Any] | None:
        """The values of the row before which `most - 1` others stand, if one stands behind it."""
        ranks = ", ".join(f"{column.rank} NULLS FIRST" for column in columns)
        texts = ", ".join(
            f"{column.text(column.rank)} AS {quote(f'#{n}')}" for n, column in enumerate(columns)
        )
        # OFFSET of an ordered query keeps all rows before it: numbered rows are a bounded sort.
        numbered = (
            f"SELECT {texts}, row_number() OVER (ORDER BY {ranks}) AS {quote('#at')} "
            f"{self._from(where)}"
        )
        listed = ", ".join(quote(f"#{n}") for n in range(len(columns)))
        found = self.client.rows(
            f"SELECT {listed}, {quote('#at')} FROM ({numbered}) "  # noqa: S608 - names are quoted
            f"WHERE {quote('#at')} BETWEEN {most} AND {most + 1}"
        )
        ends = sorted(found, key=lambda row: row[-1])
        return ends[0][:-1] if len(ends) == 2 else None

    def _last(self, column: SourceColumn, where: str) -> str | None:
        latest = column.text(f"max({column.rank})")
        found = self.client.value(f"SELECT {latest} {self._from(where)}")
        return None if found is None else str(found)

    def _from(self, where: str = "") -> str:
        return f"FROM {self.relation.base}" + (f" WHERE {where}" if where else "")

    @property
    def _order(self) -> SourceColumn:
        assert self.relation.order is not None  # noqa: S101 - else nothing orders the rows
        return self.relation.order


def _width(column: Column) -> str:
    """Bytes of a value, about: of text its letters."""
    name, kind = quote(column.name), column.kind
    if kind.name in _TEXTS or kind.name == "varbinary":
        return f"coalesce(length({name}), 0)"
    if kind.name == "json":
        return f"coalesce(length(json_format({name})), 0)"
    if kind.name in {"array", "map"}:
        return f"coalesce(cardinality({name}), 0) * {_WIDTH * 4}"
    return str(_WIDTH if kind.name != "row" else _WIDTH * 4)
