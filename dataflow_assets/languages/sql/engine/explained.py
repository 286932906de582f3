"""Describes a query in lines for people, for asset pages: read, kept, merged, written."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from datetime import date, datetime, time

from dataflow_assets.languages.sql.engine.aggregates import ONLY, Aggregate
from dataflow_assets.languages.sql.engine.bytes.layout import ChangeLayout
from dataflow_assets.languages.sql.engine.expressions import (
    CastTo,
    Expression,
    FlinkColumn,
    FlinkConstant,
    FlinkMember,
    Shared,
)
from dataflow_assets.languages.sql.engine.plan import Cell, FlinkOutput, FlinkPlan
from dataflow_assets.languages.sql.engine.ranking import Ranking
from dataflow_assets.languages.sql.engine.stages import FlinkStage
from dataflow_assets.languages.sql.engine.types import MILLIS, MONTHS
from dataflow_assets.languages.sql.engine.united import TableRows
from dataflow_assets.languages.sql.engine.unnest import Unnest, item_names
from dataflow_assets.languages.sql.engine.view import ViewPlan
from dataflow_assets.languages.sql.engine.windows import FlinkWindows

_BETWEEN = frozenset(["=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "||", "AND", "OR"])
_LONGEST = 60
"""Signs of a column's text, above which it has a name."""


def explain(plan: FlinkPlan | ViewPlan) -> str:
    """The lines, from the records to the rows of the target."""
    return "\n".join(_lines(plan))


def _lines(plan: FlinkPlan | ViewPlan) -> Iterator[str]:
    if isinstance(plan, ViewPlan) and plan.united:
        names = yield from _union(plan.united)
        yield from _forget(plan)
        yield from _merge(plan, names)
        return
    names = [one.name for one in plan.cells]
    yield f"read     {', '.join(map(_cell, plan.cells))}"
    if isinstance(plan, FlinkPlan):
        if isinstance(plan.value, ChangeLayout):
            yield "         each record is a change, which is passed on by key; no state"
        elif plan.changelog:
            yield "         each record replaces the row of its key, or deletes it; no state"
        for unnest in plan.unnests:
            yield from _unnest(unnest, names)
        yield from _write(plan.outputs, plan.shared, names, plan.where, "where")
        return
    if plan.windows is not None:
        yield _window(plan.windows, names)
        names += ["window_start", "window_end", "window_time"]
    yield from _forget(plan)
    if plan.changelog:
        key = ", ".join(names[at] for at, _ in plan.primary)
        yield f"latest   of each {key}, before and after: state `rows`"
    for unnest in plan.unnests:
        yield from _unnest(unnest, names)
    yield from _merge(plan, names)


def _forget(plan: ViewPlan) -> Iterator[str]:
    if plan.expires:
        yield f"forget   after {_seconds(plan.expires)} without a change, but for windows"


def _merge(plan: ViewPlan, names: list[str]) -> Iterator[str]:
    for number, stage in enumerate(plan.stages):
        yield from _stage(number, stage, names)
        names = [_short(one, f"${number}.{at}") for at, one in enumerate(_names(stage, names))]
    yield from _write(plan.outputs, plan.shared, names, plan.having, "having")


def _union(tables: Sequence[TableRows]) -> Generator[str, None, list[str]]:
    """The tables of a UNION ALL; gives the names of the columns of their rows."""
    texts: list[str] = []
    for table in tables:
        names = [one.name for one in table.cells]
        yield f"read     {', '.join(map(_cell, table.cells))}"
        for unnest in table.unnests:
            yield from _unnest(unnest, names)
        yield from _parts(table.shared, names)
        if table.where is not None:
            yield f"where    {text(table.where, names)}"
        selected = [text(one, names) for one in table.selected or ()]
        yield f"union    {', '.join(selected)}"
        texts = texts or [_short(one, f"${at}") for at, one in enumerate(selected)]
    return texts


def _cell(cell: Cell) -> str:
    return f"{cell.name} (metadata {cell.metadata})" if cell.place == "metadata" else cell.name


def _window(windows: FlinkWindows, names: Sequence[str]) -> str:
    steps = "" if windows.kind == "TUMBLE" else f", each {_seconds(windows.step)}"
    watermark = "the clock" if windows.of_clock else text(windows.watermark, names)
    return (
        f"window   {windows.kind} of {text(windows.time, names)}: {_seconds(windows.size)}{steps}; "
        f"watermark {watermark}"
    )


def _unnest(unnest: Unnest, names: list[str]) -> Iterator[str]:
    yield from _parts(unnest.shared, names)
    if unnest.where is not None:
        yield f"where    {text(unnest.where, names)}"
    items = _short(text(unnest.given, names), "items")
    join = "LEFT JOIN UNNEST" if unnest.outer else "UNNEST"
    yield f"unnest   {join}({text(unnest.given, names)})"
    more = (*item_names(unnest.given.type), "number")
    names[unnest.at : unnest.at] = [f"{items}.{one}" for one in more]


def _seconds(millis: int) -> str:
    return f"{millis / 1000:g} s"


def _short(text: str, name: str) -> str:
    return text if len(text) <= _LONGEST else name


def _stage(number: int, stage: FlinkStage, names: Sequence[str]) -> Iterator[str]:
    yield from _parts(stage.shared, names)
    if stage.where is not None:
        yield f"where    {text(stage.where, names)}"
    for at in sorted(stage.apart):
        yield f"distinct {_call(stage.calls[at], names)}: state `distinct-{number}`"
    keys = ", ".join(text(one, names) for one in stage.keys) or "all rows"
    if isinstance(stage, Ranking):
        order = ", ".join(_order(stage, at, names) for at in range(len(stage.order)))
        sentence = f"number   the first {stage.most} of {keys}, by {order}"
    else:
        calls = ", ".join(_call(one, names) for one in stage.calls)
        sentence = f"group    {keys}" + (f": {calls}" if calls else "")
    changed = "rows come and go" if stage.retracts else "rows only come"
    if stage.window is not None:
        changed = "final with the window"
    yield f"{sentence} ({changed}): state `groups-{number}`"


def _order(stage: Ranking, at: int, names: Sequence[str]) -> str:
    order = stage.order[at]
    argument = stage.calls[order.at].argument
    assert argument is not None  # noqa: S101 - so it is made
    return text(argument, names) + (" DESC" if order.descending else "")


def _names(stage: FlinkStage, names: Sequence[str]) -> Iterator[str]:
    yield from (text(one, names) for one in stage.keys)
    yield from (_call(one, names) for one in stage.calls)
    if isinstance(stage, Ranking):
        yield "ROW_NUMBER()"


def _call(call: Aggregate, names: Sequence[str]) -> str:
    """An aggregate as it is written; a column of rows that are numbered is that column."""
    argument = "*" if call.argument is None else text(call.argument, names)
    if call.name in ("ROW_NUMBER", ONLY):
        return argument
    distinct = "DISTINCT " if call.distinct else ""
    condition = f" FILTER (WHERE {text(call.condition, names)})" if call.condition else ""
    return f"{call.name}({distinct}{argument}){condition}"


def _write(
    outputs: Sequence[FlinkOutput],
    shared: Sequence[Expression],
    names: Sequence[str],
    condition: Expression | None,
    clause: str,
) -> Iterator[str]:
    yield from _parts(shared, names)
    if condition is not None:
        yield f"{clause:<9}{text(condition, names)}"
    columns = (f"{one.name} = {text(one.expression, names)}" for one in outputs)
    yield f"write    {', '.join(columns)}"
    key = ", ".join(one.name for one in outputs if one.key)
    yield f"         by the key {key}" if key else "         appended"


def _parts(shared: Sequence[Expression], names: Sequence[str]) -> Iterator[str]:
    for at, one in enumerate(shared):
        yield f"once     #{at} = {text(one, names)}"


def text(expression: Expression, names: Sequence[str]) -> str:
    """An expression as SQL, for people.

    Args:
        expression: over rows.
        names: of their columns.
    """
    if isinstance(expression, FlinkConstant):
        return _constant(expression)
    if isinstance(expression, FlinkColumn):
        return names[expression.at]
    if isinstance(expression, Shared):
        return f"#{expression.at}"
    if isinstance(expression, FlinkMember):
        kind = expression.given.type
        return f"{text(expression.given, names)}.{kind.names[expression.at]}"
    if isinstance(expression, CastTo):
        name = "TRY_CAST" if expression.tries else "CAST"
        return f"{name}({text(expression.given, names)} AS {expression.type})"
    arguments = [text(one, names) for one in expression.arguments]
    if expression.name in _BETWEEN and len(arguments) > 1:
        return f"({f' {expression.name} '.join(arguments)})"
    return f"{expression.name}({', '.join(arguments)})"


def _constant(constant: FlinkConstant) -> str:
    value = constant.value
    if value is None or isinstance(value, bool):
        return "NULL" if value is None else str(value).upper()
    if constant.type in (MILLIS, MONTHS):
        return f"INTERVAL {_seconds(value) if constant.type == MILLIS else f'{value} months'}"
    if isinstance(value, str | date | datetime | time):
        escaped = str(value).replace("'", "''")
        return f"'{escaped}'"
    return str(value)
