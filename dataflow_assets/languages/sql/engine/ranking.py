"""ROW_NUMBER(): the first rows of each key, kept in their order and passed on with their numbers.

Pure functions of what is kept and what has changed, as those of groups are. Where rows only come,
the rows that are numbered are all that is kept of a key; where they may go as well, all its rows
are kept, as any of them may become the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from typing_extensions import override

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.languages.sql.engine.expressions import Expression
from dataflow_assets.languages.sql.engine.merging import MergedGroups, Merging, Signed
from dataflow_assets.languages.sql.engine.stages import FlinkStage
from dataflow_assets.languages.sql.engine.types import BIGINT, FlinkType
from dataflow_assets.languages.sql.engine.values import Codec, pack, unpack, unpack_all

NUMBERED = "ROW_NUMBER"
"""In place of the name of an aggregate: a column of the rows that are numbered."""
Counted = tuple[list[Any], int]
"""A row as plain values, and how many rows are equal to it."""


@dataclass(frozen=True)
class FlinkOrder:
    """One column of ORDER BY, by its place in the columns of the rows."""

    at: int
    descending: bool
    nulls_first: bool

    def key(self, one: Counted) -> tuple[int] | tuple[int, Any]:
        """Returns the key for Python's sort, which is reversed where rows descend."""
        value, first = one[0][self.at], self.nulls_first != self.descending
        return (0 if first else 2,) if value is None else (1, value)


@dataclass(frozen=True)
class Ranking(FlinkStage):
    """Rows of each key of PARTITION BY, numbered in an order.

    Its calls are the columns of the rows. The columns of what it passes on are its keys, these
    columns, and the number.
    """

    order: tuple[FlinkOrder, ...] = ()
    most: int = 0
    """The last number that is of use; 0: not known yet."""

    @property
    @override
    def types(self) -> tuple[FlinkType, ...]:
        return (*super().types, BIGINT)

    @property
    @override
    def folds(self) -> bool:
        return False

    @property
    def number_at(self) -> int:
        """The place of the number in what is passed on."""
        return len(self.keys) + len(self.calls)

    @property
    def numbered_by(self) -> Iterator[Expression]:
        yield from self.keys
        for one in self.order:
            argument = self.calls[one.at].argument
            assert argument is not None  # noqa: S101 - so it is made
            yield argument

    def sort_rows(self, rows: Iterable[Counted]) -> list[Counted]:
        """In their order; of rows with equal values of ORDER BY the other columns decide."""
        ordered = sorted(rows, key=lambda one: pack(one[0]))
        for order in reversed(self.order):
            ordered.sort(key=order.key, reverse=order.descending)
        return ordered

    def first(self, rows: Sequence[Counted]) -> list[list[Any]]:
        """The rows that get a number, of rows in their order."""
        ranked: list[list[Any]] = []
        for values, times in rows:
            if len(ranked) >= self.most:
                break
            ranked += [values] * min(times, self.most - len(ranked))
        return ranked


def best(stage: Ranking, given: Signed) -> Signed:
    """Rows that came, without those that get no number whatever else comes.

    Args:
        stage: of which rows only come.
        given: each row once, and how many there are of it.
    """
    rows: dict[bytes, list[Counted]] = {}
    places: dict[int, int] = {}
    pairs = zip(unpack_all(given.rows), given.times.tolist(), strict=True)
    for at, ((group, row), times) in enumerate(pairs):
        values = unpack(row)
        places[id(values)] = at
        rows.setdefault(group, []).append((values, times))
    chosen = [
        places[id(values)]
        for some in rows.values()
        for values, _ in stage.sort_rows(some)[: stage.most]
    ]
    return Signed([given.rows[at] for at in chosen], given.times[chosen])


@dataclass(frozen=True)
class Ranks(Merging):
    """The keys of a ranking, and what their first rows become."""

    stage: Ranking

    @cached_property
    def _rows(self) -> Codec:
        return Codec([one.argument_type for one in self.stage.calls])

    @override
    def _one(
        self,
        group: bytes,
        known: bytes | None,
        counted: Sequence[tuple[Any, int]],
        found: MergedGroups,
    ) -> None:
        rows, sent = ([], []) if known is None else unpack(known)
        before = self.stage.first(rows)
        kept = self.stage.sort_rows(_change(rows, counted))
        if not self.stage.retracts:
            del kept[self.stage.most :]
        now = _Passed(group, before, sent, found)
        passed_on = [
            now.row(at, row, self._numbered_row) for at, row in enumerate(self.stage.first(kept))
        ]
        stored = pack([kept, passed_on]) if kept else None
        if stored != known:
            found.puts[group] = stored
        found.rows += _difference(group, sent, passed_on)
        now.tell()

    def _numbered_row(self, group: bytes, values: Sequence[Any], number: int) -> bytes | None:
        keys = self._keys.unpack(group[self.stage.front :])
        return self.finish([*keys, *self._rows.values(values), number])


@dataclass
class _Passed:
    """The rows of one key for the next stage; a part of them is as it was before."""

    group: bytes
    before: Sequence[list[Any]]
    sent: Sequence[bytes | None]
    found: MergedGroups
    refused: list[str] = field(default_factory=list)

    def row(
        self, at: int, values: list[Any], made: Callable[[bytes, Sequence[Any], int], bytes | None]
    ) -> bytes | None:
        """Returns None where the row is left out, or cannot be computed."""
        if at < len(self.before) and self.before[at] == values:
            return self.sent[at]
        try:
            return made(self.group, values, at + 1)
        except RejectedRecord as error:
            self.refused.append(f"row {at + 1}: {error.reason}")
            return None

    def tell(self) -> None:
        """Once for the key, whatever of it cannot be computed."""
        if self.refused:
            self.found.refused.append((self.group, "; ".join(self.refused)))


def _change(rows: Iterable[Counted], counted: Iterable[tuple[Any, int]]) -> list[Counted]:
    by_key = {pack(values): (values, times) for values, times in rows}
    for (values,), more in counted:
        name = pack(values)
        times = by_key.get(name, (values, 0))[1] + more
        if times > 0:
            by_key[name] = values, times
        else:
            by_key.pop(name, None)
    return list(by_key.values())


def _difference(
    group: bytes, sent: Iterable[bytes | None], passed_on: Iterable[bytes | None]
) -> list[tuple[bytes, bytes | None, bytes | None]]:
    """Rows that go, and those that come."""
    come = [one for one in passed_on if one is not None]
    gone: list[bytes] = []
    for one in sent:
        if one is None:
            continue
        if one in come:
            come.remove(one)
        else:
            gone.append(one)
    return [*((group, one, None) for one in gone), *((group, None, one) for one in come)]
