"""GROUP BY: rows that come and go into groups, and groups into the rows that they are.

Everything here is a pure function of what is kept and what has changed. Changes are counted, not
listed: how many rows more, or less, of one group have the same arguments. So the order of rows and
the borders of micro-batches do not matter.

| kept | key | value |
|---|---|---|
| `rows` of an upsert table | its PRIMARY KEY | what the first stage sees of the row |
| `distinct` of a stage | group, number of the aggregate, argument | how many rows have it |
| `groups` of a stage | group | its rows, its aggregates, and the row that was passed on last |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any, Self

from typing_extensions import override

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.sql.aggregates import Aggregate, Kept, kept
from dataflow_assets.sql.expressions import Expression, program
from dataflow_assets.sql.function import Environment, Evaluate, Row
from dataflow_assets.sql.query_rows import NO_VALUE
from dataflow_assets.sql.types import Type
from dataflow_assets.sql.values import Codec, pack, unpack
from dataflow_assets.sql.windows import FRONT, Closing

Changes = dict[tuple[bytes, bytes], int]
"""By a key and what goes with it, how many more there are; below 0 less."""
Finish = Callable[[Row], bytes | None]
"""From a group's keys and results to what is passed on; None: no row. Raises RejectedRecord."""
_ROWS = -1
"""In place of the number of an aggregate: all arguments of a row."""


@dataclass(frozen=True)
class Stage:
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
        """How many bytes are in front of the keys of its groups."""
        return 0 if self.window is None else FRONT

    @property
    def types(self) -> tuple[Type, ...]:
        """Of the columns of its rows: the keys, then the results."""
        return (*(one.type for one in self.keys), *(one.type for one in self.calls))

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """All that it looks at, in the order in which `over` takes others."""
        found = [*self.keys]
        for call in self.calls:
            found += [one for one in (call.argument, call.condition) if one is not None]
        return (*found, *(() if self.where is None else (self.where,)))

    def over(self, expressions: Iterable[Expression]) -> Self:
        """The same with other expressions."""
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
    """What a stage sees of a row: its group, and the arguments of the aggregates."""

    def __init__(self, stage: Stage, environment: Environment) -> None:
        compiled = program(stage.shared, environment)
        self._where = compiled(stage.where) if stage.where is not None else None
        self._keys = [compiled(one) for one in stage.keys]
        self._arguments = [_argument(one, compiled) for one in stage.calls]
        self._group = Codec([one.type for one in stage.keys])
        self._window, self._zone = stage.window, environment.local
        self._given = Codec([one.given for one in stage.calls])

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
                group = self._front(keys[self._window.at], self._window) + group
            return group, self._given.pack([one(row) for one in self._arguments])
        except NO_VALUE as error:
            raise RejectedRecord("step", f"GROUP BY: {error}") from None

    def _front(self, end: datetime | None, window: Closing) -> bytes:
        if end is None:
            raise RejectedRecord("step", "the row has no time, and so no window")
        return window.front(end, self._zone)


def _argument(call: Aggregate, compiled: Callable[[Expression], Evaluate]) -> Evaluate:
    """Null where the row does not count."""
    inner: Evaluate = (lambda _: True) if call.argument is None else compiled(call.argument)
    if call.counts and call.argument is not None:
        inner = _is_there(inner)
    if call.condition is None:
        return inner
    condition = compiled(call.condition)
    return lambda row: inner(row) if condition(row) is True else None


def _is_there(inner: Evaluate) -> Evaluate:
    return lambda row: None if inner(row) is None else True


@dataclass
class Spread:
    """Changes of rows as changes of what a stage keeps."""

    distinct: Changes = field(default_factory=dict)
    groups: Changes = field(default_factory=dict)


def spread(stage: Stage, changes: Mapping[tuple[bytes, bytes], int]) -> Spread:
    """What changed rows are to `distinct` and to `groups`.

    Args:
        stage: where they go.
        changes: by group and arguments, how many rows more there are.
    """
    found, apart = Spread(), sorted(stage.apart)
    for (group, arguments), times in changes.items():
        if not times:
            continue
        values = unpack(arguments)
        for at in apart:
            if values[at] is not None:
                key = group[: stage.front] + pack([group, at, values[at]])
                count(found.distinct, key, b"", times)
                values[at] = None
        count(found.groups, group, pack([_ROWS, values]), times)
    return found


def count(changes: Changes, key: bytes, beside: bytes, times: int) -> None:
    """So many more of a key and what goes with it."""
    changes[key, beside] = changes.get((key, beside), 0) + times


def _replace(changes: Changes, before: bytes | None, now: bytes | None) -> None:
    """A row that goes, and one that comes in its place."""
    for row, sign in ((before, -1), (now, 1)):
        if row is not None:
            group, arguments = unpack(row)
            count(changes, group, arguments, sign)


@dataclass
class Merged:
    """What became of one table, or of a bucket of it."""

    puts: dict[bytes, bytes | None] = field(default_factory=dict)
    """What is kept from now on; None: nothing any more."""
    changes: Changes = field(default_factory=dict)
    """Of what comes behind it."""
    rows: list[tuple[bytes, bytes | None, bytes | None]] = field(default_factory=list)
    """Groups whose row is another one: the group, the row before, the row now."""
    refused: list[tuple[bytes, str]] = field(default_factory=list)
    """Groups that have no row because it cannot be computed, and why."""


def merge_rows(old: Mapping[bytes, bytes | None], arrived: Mapping[bytes, bytes | None]) -> Merged:
    """The latest row of each key in place of the one before.

    Args:
        old: by PRIMARY KEY what the first stage has seen of the row.
        arrived: the same of the latest record; None: deleted, or left out by WHERE.

    Returns:
        `changes`: by group and arguments, for the first stage.
    """
    found = Merged()
    for key, now in arrived.items():
        before = old.get(key)
        if now == before:
            continue
        found.puts[key] = now
        _replace(found.changes, before, now)
    return found


def merge_window_rows(
    old: Mapping[bytes, bytes | None], arrived: Mapping[bytes, bytes | None]
) -> Merged:
    """The same where a row is in several windows. What goes from one that is final is not there.

    Args:
        old: by PRIMARY KEY what the first stage has seen of the row in each of its windows.
        arrived: the same of the latest record; None: in none.
    """
    found = Merged()
    for key, now in arrived.items():
        before = old.get(key)
        if now == before:
            continue
        found.puts[key] = now
        for rows, sign in ((before, -1), (now, 1)):
            for one in unpack(rows) if rows else ():
                group, arguments = unpack(one)
                count(found.changes, group, arguments, sign)
    return found


def merge_distinct(
    stage: Stage, old: Mapping[bytes, bytes | None], changes: Mapping[tuple[bytes, bytes], int]
) -> Merged:
    """How many rows have each value; a value that has come or gone is a change of its group.

    Returns:
        `changes`: for the groups of the stage.
    """
    found = Merged()
    for (key, _), times in changes.items():
        known = old.get(key)
        before = 0 if known is None else unpack(known)
        now = max(0, before + times)
        if now == before:
            continue
        found.puts[key] = pack(now) if now else None
        if bool(now) != bool(before):
            group, at, value = unpack(key[stage.front :])
            counted = stage.calls[at].name == "COUNT"
            one = pack([at, True if counted else value])
            count(found.changes, group, one, 1 if now else -1)
    return found


@dataclass(frozen=True)
class Merging(ABC):
    """The keys of a stage, what is kept of each, and what its rows become."""

    stage: Stage
    finish: Finish

    @cached_property
    def _keys(self) -> Codec:
        return Codec([one.type for one in self.stage.keys])

    def merge(
        self, old: Mapping[bytes, bytes | None], changes: Mapping[tuple[bytes, bytes], int]
    ) -> Merged:
        """The keys that have changed.

        Returns:
            `rows`: of each key that has changed what was passed on before, and what is now.
        """
        found = Merged()
        for group, counted in by_group(changes).items():
            self._one(group, old.get(group), counted, found)
        return found

    @abstractmethod
    def _one(
        self, group: bytes, known: bytes | None, counted: Sequence[tuple[Any, int]], found: Merged
    ) -> None:
        """Adds one key to `found`: what was kept of it, and what has changed."""


@dataclass(frozen=True)
class Groups(Merging):
    """The groups of a stage, and what their rows become."""

    @cached_property
    def _kept(self) -> list[Kept]:
        return [kept(one, retracts=self.stage.retracts) for one in self.stage.calls]

    @override
    def _one(
        self, group: bytes, known: bytes | None, counted: Sequence[tuple[Any, int]], found: Merged
    ) -> None:
        rows, sent, values = self._read(known)
        for (at, given), times in counted:
            if at == _ROWS:
                rows += times
                self._add(values, given, times)
            else:
                self._kept[at].add(values[at], given, times)
        if rows <= 0:
            now, stored = None, None
        else:
            now = self._row(group, values, found)
            stored = pack([rows, now, *values])
        if stored != known:
            found.puts[group] = stored
        if now != sent:
            found.rows.append((group, sent, now))

    def _read(self, known: bytes | None) -> tuple[int, bytes | None, list[Any]]:
        if known is None:
            return 0, None, [one.empty() for one in self._kept]
        rows, sent, *values = unpack(known)
        return rows, sent, values

    def _add(self, values: list[Any], given: Sequence[Any], times: int) -> None:
        for kept_one, value, argument in zip(self._kept, values, given, strict=True):
            if argument is not None:
                kept_one.add(value, argument, times)

    def _row(self, group: bytes, values: list[Any], found: Merged) -> bytes | None:
        results = [one.result(value) for one, value in zip(self._kept, values, strict=True)]
        try:
            return self.finish([*self._keys.unpack(group[self.stage.front :]), *results])
        except RejectedRecord as error:
            found.refused.append((group, error.reason))
            return None


@dataclass(frozen=True)
class WindowGroups(Groups):
    """Groups that are passed on once, when their window is final."""

    def final(self, ended: Mapping[bytes, bytes]) -> Merged:
        """What is passed on of groups that are final.

        Args:
            ended: what was kept of them; nothing is from now on.

        Returns:
            `rows`: of each group the row that it is.
        """
        found = Merged()
        for group, known in ended.items():
            _, _, values = self._read(known)
            row = super()._row(group, values, found)
            if row is not None:
                found.rows.append((group, None, row))
        return found

    def _row(self, group: bytes, values: list[Any], found: Merged) -> bytes | None:  # noqa: ARG002
        """None yet; the values are left as they are written."""
        for one, value in zip(self._kept, values, strict=True):
            one.result(value)
        return None


def by_group(
    changes: Mapping[tuple[bytes, bytes], int],
) -> dict[bytes, list[tuple[Any, int]]]:
    """By group what has changed of it, unpacked, and how many times."""
    found: dict[bytes, list[tuple[Any, int]]] = {}
    for (group, beside), times in changes.items():
        if times:
            found.setdefault(group, []).append((unpack(beside), times))
    return found


def as_changes(rows: Iterable[tuple[bytes, bytes | None, bytes | None]]) -> Changes:
    """Rows of a stage that have changed, as changes for the stage behind it."""
    found: Changes = {}
    for _, before, now in rows:
        _replace(found, before, now)
    return found
