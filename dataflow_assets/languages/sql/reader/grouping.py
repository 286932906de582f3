"""GROUP BY and DISTINCT: names behind them are those of groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from dataflow_assets.languages.common.tokens import Place, Unreadable
from dataflow_assets.languages.sql.engine.aggregates import AGGREGATES, Aggregate, result_of
from dataflow_assets.languages.sql.engine.expressions import Expression, FlinkColumn, FlinkConstant
from dataflow_assets.languages.sql.engine.stages import FlinkStage
from dataflow_assets.languages.sql.engine.types import FlinkType
from dataflow_assets.languages.sql.reader.bind import Scope, bound
from dataflow_assets.languages.sql.reader.syntax import (
    Casting,
    FlinkName,
    FlinkNumbered,
    Invoked,
    Literal,
    Node,
    Select,
    Star,
)


@dataclass(frozen=True)
class Grouping(Scope):
    """Resolves names and aggregates after a GROUP BY."""

    inner: Scope = Scope(())
    """Of the rows that are grouped."""
    keys: tuple[Expression, ...] = ()
    calls: list[Aggregate] = field(default_factory=list)
    """Those that were met so far, each once."""

    def whole(self, node: Node) -> Expression | None:
        """An aggregate, or what is grouped by. Raises Unreadable for any other column."""
        if isinstance(node, Invoked) and node.name in AGGREGATES:
            return self._call(node)
        if isinstance(node, Literal | FlinkNumbered):
            return None
        if isinstance(node, Star):
            raise Unreadable(node.place, "* stands for columns that are not in GROUP BY")
        if isinstance(node, FlinkName):
            return self._key(bound(node, self.inner), node)
        # An expression of GROUP BY, as it is there.
        if all(isinstance(one, FlinkColumn) for one in self.keys):
            return None
        try:
            expression = bound(node, self.inner)
        except Unreadable:
            return None  # something in it is an aggregate, or wrong: its parts tell
        return self._column(expression) if expression in self.keys else None

    def _key(self, expression: Expression, node: FlinkName) -> Expression:
        if expression not in self.keys:
            name = ".".join(node.parts)
            message = f"{name} is neither in GROUP BY nor inside an aggregate"
            if any(isinstance(one, FlinkConstant) for one in self.keys):
                message += "; a number in GROUP BY is no place in the SELECT: write the column"
            raise Unreadable(node.place, message)
        return self._column(expression, node.parts[-1])

    def _column(self, expression: Expression, name: str = "") -> FlinkColumn:
        return FlinkColumn(expression.type, self.keys.index(expression), name)

    def _call(self, node: Invoked) -> Expression:
        call = aggregate(node, self.inner)
        if call not in self.calls:
            self.calls.append(call)
        return FlinkColumn(call.type, len(self.keys) + self.calls.index(call), node.name)


def aggregate(node: Invoked, scope: Scope) -> Aggregate:
    argument = _argument(node, scope)
    condition = None if node.condition is None else bound(node.condition, scope)
    if condition is not None and condition.type.kind not in ("BOOLEAN", "NULL"):
        message = f"FILTER takes a condition, not {condition.type}"
        raise Unreadable(_place(node.condition, node), message)
    argument_type = FlinkType("BOOLEAN") if argument is None else argument.type
    if node.distinct and has_map(argument_type):
        raise Unreadable(node.place, f"{node.name}: {argument_type} cannot be compared")
    try:
        kind = result_of(node.name, argument_type)
    except ValueError as error:
        raise Unreadable(node.place, f"{node.name}: {error}") from None
    return Aggregate(node.name, kind, argument, node.distinct, condition)


def _place(node: Node | None, other: Node) -> Place:
    return other.place if node is None else node.place


def _argument(node: Invoked, scope: Scope) -> Expression | None:
    if len(node.arguments) != 1:
        message = f"{node.name} takes 1 argument, not {len(node.arguments)}"
        raise Unreadable(node.place, message)
    (given,) = node.arguments
    if not isinstance(given, Star):
        return bound(given, scope)
    if node.name != "COUNT" or node.distinct or given.table:
        raise Unreadable(given.place, "* is of COUNT(*) alone")
    return None


def has_map(kind: FlinkType) -> bool:
    """Tells whether values are maps or hold some, which no rule compares."""
    return kind.kind == "MAP" or any(map(has_map, kind.items))


def is_grouped(select: Select) -> bool:
    """Returns whether rows become groups; without GROUP BY all are one group."""
    if select.groups is not None or select.having is not None:
        return True
    return any(map(has_aggregate, (one.node for one in select.items)))


def has_aggregate(node: Node) -> bool:
    if isinstance(node, Invoked) and node.name in AGGREGATES:
        return True
    return any(map(has_aggregate, _parts(node)))


def _parts(node: Node) -> Iterator[Node]:
    if isinstance(node, Invoked):
        yield from node.arguments
    elif isinstance(node, Casting):
        yield node.given


def grouping(select: Select, scope: Scope) -> Grouping:
    """The scope behind GROUP BY. Raises Unreadable."""
    keys: list[Expression] = []
    for node in select.groups or ():
        expression = bound(node, scope)
        if has_map(expression.type):
            raise Unreadable(node.place, f"GROUP BY: {expression.type} cannot be compared")
        if expression not in keys:
            keys.append(expression)
    return Grouping((), scope.tables, scope.environment, scope, tuple(keys))


def stage(scope: Grouping, where: Expression | None, *, retracts: bool) -> FlinkStage:
    """The groups, once all aggregates are known."""
    return FlinkStage(scope.keys, tuple(scope.calls), where, retracts)
