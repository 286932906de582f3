"""The older way to write windows, `GROUP BY TUMBLE(ts, INTERVAL '10' MINUTE)`, as the newer one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from dataflow_assets.languages.common.tokens import Unreadable
from dataflow_assets.languages.sql.reader.read_windows import LENGTHS
from dataflow_assets.languages.sql.reader.syntax import (
    Casting,
    FlinkName,
    FlinkReference,
    Invoked,
    Literal,
    Node,
    Select,
    Windowed,
)
from dataflow_assets.languages.sql.reader.windows import END, START, TIME

KINDS = ("TUMBLE", "HOP")
_COLUMNS: Mapping[str, str] = {"START": START, "END": END, "ROWTIME": TIME}


def over_windows(select: Select) -> Select:
    """The query as if its windows were in FROM; the same one where it has none in GROUP BY.

    Raises Unreadable.
    """
    groups = select.groups or ()
    windows = [one for one in groups if isinstance(one, Invoked) and one.name in KINDS]
    if not windows:
        return select
    if len(windows) > 1:
        raise Unreadable(windows[1].place, "a query has one window")
    window = windows[0]
    names = _FlinkNamed(window)
    items = tuple(replace(one, node=names.of(one.node)) for one in select.items)
    having = None if select.having is None else names.of(select.having)
    keys = [names.of(one) for one in groups if one is not window]
    keys += [FlinkName(window.place, (name,)) for name in (START, END, *names.used)]
    source = _window(window, select)
    return replace(
        select, items=items, source=source, alias=_alias(select), groups=tuple(keys), having=having
    )


def _alias(select: Select) -> str | None:
    """The name of the table is a name of its windows."""
    return select.source.alias if isinstance(select.source, FlinkReference) else select.alias


def _window(window: Invoked, select: Select) -> Windowed:
    if not isinstance(select.source, FlinkReference) or select.source.options:
        message = f"{window.name} in GROUP BY needs a table or view in FROM, without a hint"
        raise Unreadable(window.place, message)
    column, lengths = next(iter(window.arguments), None), window.arguments[1:]
    names = [*LENGTHS[window.name], "OFFSET"]
    pairs = dict(zip(names, lengths, strict=False))
    intervals = {name: one for name, one in pairs.items() if isinstance(one, Literal)}
    enough = len(LENGTHS[window.name]) <= len(lengths) <= len(names)
    fits = all(one.type.interval for one in intervals.values()) and len(intervals) == len(lengths)
    if not isinstance(column, FlinkName) or not enough or not fits:
        listed = ", ".join(name.lower() for name in LENGTHS[window.name])
        message = (
            f"{window.name} in GROUP BY is {window.name}(ts, {listed}[, offset]), of intervals"
        )
        raise Unreadable(window.place, message)
    return Windowed(window.place, window.name, select.source, column, intervals)


class _FlinkNamed:
    """Names in place of TUMBLE_START and the like, of one window."""

    def __init__(self, window: Invoked) -> None:
        self._window, self._written = window, _text(window)
        self.used: list[str] = []
        """Columns that must be in GROUP BY for them."""

    def of(self, node: Node) -> Node:
        if isinstance(node, Casting):
            return replace(node, given=self.of(node.given))
        if not isinstance(node, Invoked):
            return node
        kind, _, column = node.name.partition("_")
        if kind in KINDS and column in _COLUMNS:
            return self._column(node, _COLUMNS[column])
        condition = None if node.condition is None else self.of(node.condition)
        arguments = tuple(map(self.of, node.arguments))
        return replace(node, arguments=arguments, condition=condition)

    def _column(self, node: Invoked, name: str) -> FlinkName:
        if _text(node)[1:] != self._written[1:] or not node.name.startswith(self._window.name):
            message = f"{node.name} must have the arguments of the {self._window.name} of GROUP BY"
            raise Unreadable(node.place, message)
        if name == TIME and name not in self.used:
            self.used.append(name)
        return FlinkName(node.place, (name,))


def _text(node: Invoked) -> list[object]:
    """A call without its places, to compare."""
    return [node.name, *_arguments(node)]


def _arguments(node: Invoked) -> Iterator[object]:
    for one in node.arguments:
        if isinstance(one, Literal):
            yield one.type, one.value
        elif isinstance(one, FlinkName):
            yield one.parts
        else:
            yield one
