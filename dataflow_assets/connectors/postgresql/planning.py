"""From a position to the next one: which rows to read, in which parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dataflow_assets.connectors.postgresql import comparing, ranges
from dataflow_assets.connectors.postgresql.incremental import clock
from dataflow_assets.connectors.postgresql.link import Link, TextLink
from dataflow_assets.connectors.postgresql.relation import Column, Relation, is_indexed, quoted
from dataflow_assets.errors import PermanentError
from dataflow_assets.polling import NOTHING, Pair, Position, Rows

if TYPE_CHECKING:
    from dataflow_assets.connectors.postgresql.source import PostgresqlSource

COUNTED = 10_000


@dataclass(frozen=True)
class Step:
    """What one span reads. A part None is a query as it stands."""

    parts: tuple[Rows | None, ...]
    upto: Position
    full: bool = False


@dataclass(frozen=True)
class Planner:
    """Plans over one relation as it is now, inside the caller's transaction."""

    link: TextLink
    source: PostgresqlSource
    relation: Relation

    def step(self, position: Position, until: Position | None, most: int) -> Step | None:
        """The next step, not beyond `until`; None where there is nothing to read.

        A first load ends at the bound that was fixed when it began, wherever `until` is by now.
        """
        if self.relation.wholly:
            at = until.read_at if until is not None and until.state == "query" else None
            return Step((None,), Position("query", read_at=at or comparing.now(self.link)))
        self._check(position)
        if position.state == "load":
            return self._load(position, until, most)
        return self._increments(position, until, most)

    def notes(self, position: Position) -> Iterator[str]:
        """What a person should know about rows that are not read, or read slowly."""
        tracked = self.relation.tracked
        if tracked is None or self.relation.order is None:
            return
        order = self.relation.order.name
        if position.state == "load":
            if not is_indexed(self.link, self.relation):
                yield (
                    f"no index begins with {order}: each span of the first load sorts what is left "
                    f"of the table; an index on ({order}) spares that"
                )
            return
        unread = _unordered(self.link, self.relation) - position.unordered
        if unread > 0:
            yield (
                f"{unread} rows that came after the first load have no {tracked.name}: they have "
                "no place in the order and are not read"
            )
        if clock(tracked) and _is_ahead(self.link, self.relation, tracked):
            yield (
                f"{tracked.name} of some rows lies in the future of the database's clock: they are "
                "read when their time has come"
            )

    def _load(self, position: Position, until: Position | None, most: int) -> Step | None:
        begun = position if position.begun else self._begun(position, until)
        if begun is None:
            return None
        same = until is not None and until.bound == begun.bound
        stop = until.key if until is not None and same and until.begun else None
        rows = Rows(upto=begun.bound, load=True, low=begun.key, high=stop)
        cut = ranges.load(self.link, self.relation, rows, most)
        if cut.full:
            return Step(cut.parts, replace(begun, key=cut.parts[-1].high), full=True)
        if until is not None and same:
            return Step(cut.parts, _knowing(until, begun))
        return Step(cut.parts, begun.loaded())

    def _begun(self, position: Position, until: Position | None) -> Position | None:
        """The first load with its bound fixed; None for an empty table."""
        if until is not None and until.at_start:
            return None
        bound = until.bound if until else ranges.newest(self.link, self.relation)
        if bound == NOTHING and not ranges.has_rows(self.link, self.relation):
            return None
        known = until.unordered if until is not None and until.begun else None
        return replace(
            position,
            begun=True,
            change=bound[0],
            order=bound[1],
            read_at=until.read_at if until else comparing.now(self.link),
            unordered=_unordered(self.link, self.relation) if known is None else known,
        )

    def _increments(self, position: Position, until: Position | None, most: int) -> Step | None:
        if until is not None and until.state == "load":
            return None
        last = until or comparing.end(self.link, self.relation)
        target = _knowing(last, position)
        after = position.bound
        if late := comparing.late_from(self.source, position):
            again: Pair = (late, None)
            if comparing.is_before(self.link, self.relation, again, after):
                after = again
        if not comparing.is_before(self.link, self.relation, position.bound, last.bound):
            if not late:
                return None
            target = replace(position, read_at=last.read_at)
        cut = ranges.increments(self.link, self.relation, Rows(after, target.bound), most)
        if cut.full:
            change, order = cut.parts[-1].upto
            target = replace(position, change=change, order=order)
        return Step(cut.parts, target, cut.full)

    def _check(self, position: Position) -> None:
        wrong = ""
        if position.state == "query":
            wrong = "of a query that was read as a whole"
        elif position.change and position.order is None and not self.relation.changes:
            wrong = f"by {self.source.change_tracking_column}, which is no column of it"
        if wrong:
            raise PermanentError(
                f"the checkpoint of {self.source.title} is {wrong}; start from earliest or from "
                "latest, or run dataflow reset"
            )


def _knowing(position: Position, before: Position) -> Position:
    """With what was known before: an end that was only looked up knows of no such rows."""
    return replace(position, unordered=max(position.unordered, before.unordered))


def _unordered(link: Link, relation: Relation) -> int:
    """Rows without a place in the order, counted up to a bound."""
    columns = relation.changes or ((relation.order,) if relation.order else ())
    if any(column.required for column in columns):
        return 0
    missing = " AND ".join(f"{quoted(column)} IS NULL" for column in columns)
    query = f"SELECT FROM {relation.base} WHERE {missing} LIMIT {COUNTED}"
    ((found,),) = link.execute(f"SELECT count(*) FROM ({query}) AS n")  # noqa: S608
    return int(found)


def _is_ahead(link: Link, relation: Relation, column: Column) -> bool:
    where = f"{quoted(column)} > {clock(column)}"
    ((found,),) = link.execute(f"SELECT EXISTS (SELECT FROM {relation.base} WHERE {where})")  # noqa: S608
    return bool(found)
