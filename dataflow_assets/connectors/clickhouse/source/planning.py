"""The questions of planning, asked of ClickHouse: bounds, borders, counts, comparisons.

Values are bound as parameters with their types; conditions let the server use primary keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dataflow_assets.connectors.clickhouse.client import Client, query_rows, quote
from dataflow_assets.connectors.clickhouse.source import upper_bound
from dataflow_assets.connectors.clickhouse.source.relation import Relation, SourceColumn
from dataflow_assets.connectors.clickhouse.type_names import Type
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.polling import NOTHING, Pair, PolledPosition, Rows, ticks
from dataflow_assets.sdk.polling.conditions import Conditions

_NOW = "SELECT toString(now64(6, 'UTC'))"


@dataclass
class Values:
    """The parameters of one statement."""

    found: dict[str, str] = field(default_factory=dict)

    def of(self, column: SourceColumn, value: str) -> str:
        """The value in the statement, in the column's type."""
        name = f"v{len(self.found) + 1}"
        self.found[name] = value
        return f"{{{name}:{column.kept}}}"


def conditions(relation: Relation, values: Values) -> Conditions[SourceColumn]:
    """Which rows a part of an ordered relation has; `values` gets what is bound."""
    assert relation.order is not None  # noqa: S101 - else nothing orders the rows
    return Conditions(relation.change, relation.order, values.of)


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
        return str(query_rows(self.client, _NOW)[0][0])

    def newest(self) -> Pair:
        """The last pair there is now, none of a tick of the server's clock that still runs."""
        change, order = self.relation.change, self._order
        if change is None:
            return None, self._last(order, *self._until_now(order))
        latest = self._last(change, *self._until_now(change))
        if latest is None:
            return NOTHING
        values = Values()
        where = f"{change.quoted} = {values.of(change, latest)}"
        return latest, self._last(order, where, values)

    def has_rows(self) -> bool:
        """Returns whether there is any row at all."""
        return bool(self._ask(f"SELECT 1 {self._from()} LIMIT 1"))

    def unordered(self) -> int:
        """Returns how many rows have no place in the order."""
        column = self.relation.change or self._order
        if not column.nullable:
            return 0
        where = f"{column.rank} IS NULL"
        return int(self._ask(f"SELECT count() {self._from(where)}")[0][0])

    def is_before(self, one: Pair, other: Pair) -> bool:
        """Returns whether a pair comes before another; a missing value comes before every other."""
        if one == other:
            return False
        values = Values()
        sql = conditions(self.relation, values).before(one, other)
        return bool(query_rows(self.client, f"SELECT {sql}", values.found)[0][0])

    def estimate(self, rows: Rows) -> int:
        """Returns how many rows there are: counted, which reads two columns."""
        return self.count(rows)

    def count(self, rows: Rows) -> int:
        values = Values()
        where = conditions(self.relation, values).of(rows)
        return int(self._ask(f"SELECT count() {self._from(where)}", values)[0][0])

    def size(self, rows: Rows) -> tuple[int, int]:
        """Returns how many rows there are, and how many bytes their values have."""
        values = Values()
        where = conditions(self.relation, values).of(rows)
        widths = ", ".join(map(_width, self.relation.columns))
        query = f"SELECT count(), sum(byteSize({widths})) {self._from(where)}"
        ((count, size),) = self._ask(query, values)
        return count, size

    def age(self, rows: Rows) -> float | None:
        """Seconds since the oldest of the rows was changed; None where nothing tells."""
        change = self.relation.change or self._order
        if change.digits is None:
            return None
        values = Values()
        where = conditions(self.relation, values).of(rows)
        oldest = f"CAST(minOrNull({change.quoted}), 'Nullable(DateTime64(6))')"
        query = f"SELECT toFloat64(now64(6)) - toFloat64({oldest}) {self._from(where)}"
        ((found,),) = self._ask(query, values)
        return None if found is None else max(0.0, float(found))

    def key(self, rows: Rows, most: int) -> str | None:
        """The last order value of the first `most` rows; None where there are no more."""
        order = self._order
        values = Values()
        where = conditions(self.relation, values).of(rows)
        where = f"({where}) AND {order.rank} IS NOT NULL" if order.nullable else where
        found = self._placed([order], where, values, most)
        return None if found is None else found[0]

    def border(self, rows: Rows, most: int) -> Pair | None:
        """The last pair of the first `most` rows; None where there are no more."""
        values = Values()
        where = conditions(self.relation, values).of(rows)
        if self.relation.change is None:
            found = self._placed([self._order], where, values, most)
            return None if found is None else (None, found[0])
        found = self._placed([self.relation.change, self._order], where, values, most)
        return None if found is None else (found[0], found[1])

    def before(self, time: str) -> str | None:
        """The last change value before a time; None where changes have none."""
        change = self.relation.change
        if change is None or change.digits is None:
            return None
        return upper_bound.before(time, change.digits, day=change.is_day)

    def at(self, time: str) -> str:
        """The last change value that is not behind a time."""
        change = self.relation.change
        if change is None or change.digits is None:
            raise PermanentError(
                "the checkpoint has a time, and the changeTrackingColumn of "
                f"{self.title} is not a time" + (f": it is {change.type}" if change else "")
            )
        return upper_bound.at(time, change.digits, day=change.is_day)

    def notes(self, position: PolledPosition) -> Iterator[str]:  # noqa: ARG002 - what others need
        """Returns what a person should know about rows that wait, or may be missed."""
        change, order = self.relation.change, self.relation.order
        if change is None or order is None:
            return
        if change.digits is None:
            yield ticks.ties(change.name, change.type, order.name)
        width = upper_bound.tick(self.client, self.relation, change)
        yield from ticks.waiting(change.name, width, "use a DateTime or a DateTime64 column")

    def _until_now(self, column: SourceColumn) -> tuple[str, Values]:
        values = Values()
        upto = upper_bound.upto(self.client, self.relation, column)
        return (f"{column.quoted} < {values.of(column, upto)}" if upto else ""), values

    def _placed(
        self, columns: list[SourceColumn], where: str, values: Values, most: int
    ) -> list[str] | None:
        """The values of the row before which `most - 1` others stand, if one stands behind it."""
        # A name that could be a column's would stand for it in the conditions.
        aliases = [quote(f"{self.relation.alias}{n}") for n in range(len(columns))]
        pairs = [*zip(columns, aliases, strict=True)]
        names = ", ".join(f"{column.rank} AS {alias}" for column, alias in pairs)
        texts = ", ".join(column.text(alias) for column, alias in pairs)
        ranks = ", ".join(f"{column.rank} NULLS FIRST" for column in columns)
        inner = f"SELECT {names} {self._from(where)} ORDER BY {ranks} LIMIT 2 OFFSET {most - 1}"
        # S608: names are quoted, values are bound
        found = self._ask(f"SELECT {texts} FROM ({inner})", values)  # noqa: S608
        return list(found[0]) if len(found) == 2 else None

    def _last(self, column: SourceColumn, where: str, values: Values) -> str | None:
        latest = column.text(f"maxOrNull({column.rank})")
        found = self._ask(f"SELECT {latest} {self._from(where)}", values)[0][0]
        return None if found is None else str(found)

    def _from(self, where: str = "") -> str:
        return f"FROM {self.relation.base}" + (f" WHERE {where}" if where else "")

    def _ask(self, query: str, values: Values | None = None) -> list[Any]:
        return query_rows(self.client, query, values.found if values else {})

    @property
    def _order(self) -> SourceColumn:
        assert self.relation.order is not None  # noqa: S101 - else nothing orders the rows
        return self.relation.order


def _width(column: SourceColumn) -> str:
    name, kind = column.quoted, Type.of(column.type).bare.name
    return f"toString({name})" if kind in {"JSON", "Dynamic", "Variant"} else name
