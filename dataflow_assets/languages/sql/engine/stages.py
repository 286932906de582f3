"""GROUP BY: what a stage of a query is, and what it sees of a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.languages.sql.engine.aggregates import Aggregate
from dataflow_assets.languages.sql.engine.columns import FlinkColumns, spread_out
from dataflow_assets.languages.sql.engine.expressions import Expression, program
from dataflow_assets.languages.sql.engine.function import NO_VALUE, Environment, Evaluate, Row
from dataflow_assets.languages.sql.engine.types import FlinkType
from dataflow_assets.languages.sql.engine.values import Codec, pack_rows
from dataflow_assets.languages.sql.engine.windows import FRONT, Closing


@dataclass(frozen=True)
class FlinkStage:
    """One GROUP BY over the rows of a table, or of the stage before."""

    keys: tuple[Expression, ...]
    calls: tuple[Aggregate, ...]
    where: Expression | None = None
    """Of the rows that go into it."""
    retracts: bool = False
    """Whether rows may go as well as come."""
    shared: tuple[Expression, ...] = ()
    """What several expressions need, computed once for a row; each may need those before it."""
    window: Closing | None = None
    """Of groups that are in windows: they are passed on once, when they are final."""

    @property
    def front(self) -> int:
        """Returns how many bytes are in front of the keys of its groups."""
        return 0 if self.window is None else FRONT

    @property
    def folds(self) -> bool:
        """Tells whether rows of a group are added up before the group's state is read."""
        return True

    @property
    def types(self) -> tuple[FlinkType, ...]:
        """The types of its rows' columns: the keys, then the results."""
        return (*(one.type for one in self.keys), *(one.type for one in self.calls))

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """All that it looks at, in the order in which `over` takes others."""
        everything = [*self.keys]
        for call in self.calls:
            everything += [one for one in (call.argument, call.condition) if one is not None]
        return (*everything, *(() if self.where is None else (self.where,)))

    def over(self, expressions: Iterable[Expression]) -> Self:
        taken = iter(expressions)
        keys = tuple(next(taken) for _ in self.keys)
        calls = tuple(one.over(taken) for one in self.calls)
        where = None if self.where is None else next(taken)
        return replace(self, keys=keys, calls=calls, where=where)

    @cached_property
    def apart(self) -> frozenset[int]:
        """The aggregates of distinct values. Of the smallest or largest it makes no difference."""
        calls = enumerate(self.calls)
        return frozenset(at for at, one in calls if one.distinct and one.name not in ("MIN", "MAX"))


class Intake:
    """Computes a row's group and the arguments of the aggregates."""

    def __init__(self, stage: FlinkStage, environment: Environment) -> None:
        compiled = program(stage.shared, environment)
        self._stage = stage
        self._where = compiled(stage.where) if stage.where is not None else None
        self._keys = [compiled(one) for one in stage.keys]
        self._arguments = [_argument(one, compiled) for one in stage.calls]
        self._group = Codec([one.type for one in stage.keys], keys=True)
        self._window, self._zone = stage.window, environment.local
        self._given = Codec([one.argument_type for one in stage.calls])

    def __call__(self, row: Row) -> tuple[bytes, bytes] | None:
        """Group and arguments as bytes; None for a row that WHERE leaves out.

        Raises RejectedRecord where something cannot be computed.
        """
        try:
            if self._where is not None and self._where(row) is not True:
                return None
            keys = [one(row) for one in self._keys]
            group = self._group.pack(keys)
            if self._window is not None:
                end = keys[self._window.at]
                if end is None:
                    raise RejectedRecord("step", "the row has no time, and so no window")
                group = self._window.front(end, self._zone) + group
            return group, self._given.pack([one(row) for one in self._arguments])
        except NO_VALUE as error:
            raise RejectedRecord("step", f"GROUP BY: {error}") from None

    def together(self, rows: FlinkColumns) -> list[bytes | None]:
        """Group and arguments of many rows, packed; None for a row that WHERE leaves out.

        Only of a stage without windows. Raises an error of any kind where something cannot be
        computed: rows are to be seen one by one then.
        """
        places: Sequence[int] = range(rows.count)
        if self._where is not None:
            there = rows.of(self._stage.where, self._where)
            places = [at for at, value in enumerate(there) if value is True]
        some = rows.take(places)
        pairs = zip(self._stage.keys, self._keys, strict=True)
        groups = self._group.pack_all([some.of(*one) for one in pairs], some.count)
        calls = zip(self._stage.calls, self._arguments, strict=True)
        arguments = self._given.pack_all([_arguments(*one, some) for one in calls], some.count)
        packed = pack_rows([groups, arguments])
        return [*packed] if some is rows else spread_out(packed, places, rows.count)


def _argument(call: Aggregate, compiled: Callable[[Expression], Evaluate]) -> Evaluate:
    """Null where the row does not count."""
    inner: Evaluate = (lambda _: True) if call.argument is None else compiled(call.argument)
    if call.counts and call.argument is not None:
        inner = _is_there(inner)
    if call.condition is None:
        return inner
    condition = compiled(call.condition)
    return lambda row: inner(row) if condition(row) is True else None


def _arguments(call: Aggregate, evaluate: Evaluate, rows: FlinkColumns) -> Sequence[Any]:
    if call.condition is None and call.argument is None:
        return [True] * rows.count
    if call.condition is None and call.counts:
        values = rows.of(call.argument, evaluate)
        return [None if value is None else True for value in values]
    return rows.of(call.argument if call.condition is None else None, evaluate)


def _is_there(inner: Evaluate) -> Evaluate:
    return lambda row: None if inner(row) is None else True
