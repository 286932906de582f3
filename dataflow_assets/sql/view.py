"""What an INSERT with state does: messages into the first stage, groups into rows of the target."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

from pydantic import InstanceOf
from typing_extensions import override

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.records.record import NotJson, Record, encode, parse
from dataflow_assets.records.step import Apply, Context, Example, Origins, Step
from dataflow_assets.sql.bytes.layout import Layout, Times
from dataflow_assets.sql.columns import Columns, spread_out
from dataflow_assets.sql.expressions import Expression, columns, program
from dataflow_assets.sql.function import Environment, Row
from dataflow_assets.sql.input import Input, Messages, Source
from dataflow_assets.sql.merging import Finish, Groups, Merging, WindowGroups
from dataflow_assets.sql.no_value import holds
from dataflow_assets.sql.plan import Cell, Output
from dataflow_assets.sql.query_rows import Outputs
from dataflow_assets.sql.ranking import Ranking, Ranks
from dataflow_assets.sql.stages import Intake, Stage
from dataflow_assets.sql.types import Type
from dataflow_assets.sql.united import Rows, TableRows
from dataflow_assets.sql.unnest import Unnest
from dataflow_assets.sql.values import Codec, pack, unpack
from dataflow_assets.sql.windows import Windows


@dataclass(frozen=True)
class ViewPlan:
    """A query with state. Made when a file is loaded, sent to the tasks."""

    value: Layout
    key: Layout | None
    cells: tuple[Cell, ...]
    stages: tuple[Stage, ...]
    outputs: tuple[Output, ...]
    having: Expression | None = None
    """Over the columns of the last stage."""
    primary: tuple[tuple[int, Type], ...] = ()
    """Of an upsert table the places of its PRIMARY KEY in a row; empty: rows only come."""
    times: Times = "RFC-3339"
    drops_nulls: bool = False
    zone: str = "UTC"
    shared: tuple[Expression, ...] = ()
    """What `having` and `outputs` have in common."""
    windows: Windows | None = None
    """Of the rows of the table; their columns are behind `cells`."""
    idle: int = 0
    """Milliseconds after which a partition without records is not waited for; 0: it always is."""
    expires: int = 0
    """Milliseconds after which what was not touched is forgotten, but for windows; 0: never."""
    unnests: tuple[Unnest, ...] = ()
    """What makes several rows of one, behind the columns of windows and in front of the stages."""
    united: tuple[TableRows, ...] = ()
    """With UNION ALL all tables; `value`, `key` and `cells` are then those of the first one."""

    @cached_property
    def tables(self) -> tuple[TableRows, ...]:
        """The tables that it reads, by their numbers."""
        return self.united or (TableRows(self.value, self.key, self.cells, self.unnests),)

    @property
    def changelog(self) -> bool:
        """Whether rows of the table are replaced and deleted."""
        return bool(self.primary)

    @property
    def several(self) -> bool:
        """Whether the first stage may see several rows of one of the table, or none."""
        return self.windows is not None or bool(self.unnests)

    def kept(self, seen: Sequence[bytes]) -> bytes | None:
        """What `rows` keeps of a row of an upsert table; None: nothing.

        Args:
            seen: what the first stage sees of it.
        """
        if not seen:
            return None
        return pack(seen) if self.several else seen[0]

    def seen(self, kept: bytes) -> Sequence[bytes]:
        """The opposite of `kept`."""
        found: Sequence[bytes] = unpack(kept) if self.several else [kept]
        return found

    @property
    def remembers(self) -> bool:
        """Whether the state has all rows of the target.

        Rows of windows that have ended, and those that have expired, are in the target alone.
        """
        return self.stages[-1].window is None and not self.expires

    @cached_property
    def shape(self) -> str:
        """A digest of all that decides what is kept of rows; names and spelling do not count."""
        read = (self.value, self.key, self.cells, self.primary, self.zone)
        found = (read, self.stages, *self.unnests, *self.united)
        return _digest(found if self.windows is None else (*found, self.windows))

    @cached_property
    def query(self) -> str:
        """A digest of all that decides which rows the target has."""
        written = (self.outputs, self.having, self.shared, self.times, self.drops_nulls)
        return _digest((self.shape, written))

    @cached_property
    def key_names(self) -> frozenset[str]:
        """The columns of the target that rows are matched by."""
        return frozenset(one.name for one in self.outputs if one.key)

    def reads(self, table: TableRows) -> frozenset[str]:
        """The metadata of the messages of a table that it needs."""
        return table.metadata() | {"timestamp"} if self.changelog else table.metadata()

    def origins(self, name: str) -> frozenset[str] | None:
        """The columns of the table that a column of the target is made of."""
        found = next((one for one in self.outputs if one.name == name), None)
        if found is None:
            return None
        places = columns(found.expression, self.shared)
        for stage in reversed(self.stages):
            inner = list(_looked_at(stage))
            places = frozenset[int]().union(*(inner[at] for at in places))
        if self.united:
            return None  # its name alone would not say of which table it is
        places = self.tables[0].made_of(places)
        if self.windows is not None and any(at >= len(self.cells) for at in places):
            places |= columns(self.windows.time)
        cells = (self.cells[at] for at in places if at < len(self.cells))
        return frozenset(one.name for one in cells if one.place != "metadata")


def _looked_at(stage: Stage) -> Iterator[frozenset[int]]:
    """By the column of its rows the places of the rows that go into it."""
    parts: list[tuple[Expression | None, ...]] = [(one,) for one in stage.keys]
    parts += [(one.argument, one.condition) for one in stage.calls]
    for some in parts:
        found = (columns(one, stage.shared) for one in some if one is not None)
        yield frozenset[int]().union(*found)
    if isinstance(stage, Ranking):
        yield frozenset[int]().union(*(columns(one, stage.shared) for one in stage.numbered_by))


def _digest(found: object) -> str:
    return hashlib.sha256(repr(found).encode()).hexdigest()[:16]


class Arrived(NamedTuple):
    """What came of a message."""

    key: bytes | None
    """Of an upsert table."""
    rows: Sequence[bytes]
    """What the first stage sees of it; of an upsert table none where the row is deleted."""


class PrimaryKey:
    """The key of a row of an upsert table."""

    def __init__(self, view: ViewPlan) -> None:
        self._places = [at for at, _ in view.primary]
        self._names = [view.cells[at].name for at in self._places]
        self._codec = Codec([kind for _, kind in view.primary])

    def __call__(self, row: Row) -> bytes:
        """Raises RejectedRecord where a column of it is null."""
        values = [row[at] for at in self._places]
        if None in values:
            name = self._names[values.index(None)]
            raise RejectedRecord("step", f"the column {name} of the PRIMARY KEY is null")
        return self._codec.pack(values)

    def together(self, rows: Columns) -> list[bytes]:
        """Of many rows. Raises ValueError where a column of one is null."""
        columns = [rows.values[at] for at in self._places]
        if any(None in one for one in columns):
            raise ValueError("a column of the PRIMARY KEY is null")
        return self._codec.pack_all(columns, rows.count)


class Arrivals:
    """Messages as what the first stage sees of them; compiled once for each task."""

    def __init__(self, view: ViewPlan, table: TableRows, environment: Environment) -> None:
        """`table`: whose messages are read."""
        source = Source(table.value, table.key, table.cells, view.changelog)
        first, primary = view.stages[0], frozenset(at for at, _ in view.primary)
        used = frozenset[int]().union(*(columns(one, first.shared) for one in first.expressions))
        used = primary | table.cells_for(used)
        self._input = Input(source, environment.local, used)
        self._rows = Rows(table, environment)
        self._intake = Intake(first, environment)
        self._key = PrimaryKey(view) if view.changelog else None
        self._kept = view.kept

    def __call__(self, record: Record) -> Arrived | None:
        """None for what changes nothing. Raises RejectedRecord."""
        taken = self._input(record)
        if taken is None:
            return None
        row, gone = taken
        key = None if self._key is None else self._key(row)
        rows = () if gone else self._rows(row)
        seen = (self._intake(one) for one in rows)
        return Arrived(key, [pack(one) for one in seen if one is not None])

    def together(self, given: Messages) -> tuple[list[bytes] | None, list[bytes | None]]:
        """The same of many messages: their keys (None: of no upsert table), and what is seen.

        Raises an error of any kind where one of the messages is to be looked at by itself.
        """
        found = self._input.together(given)
        rows, owners = self._rows.together(found.rows)
        seen = self._intake.together(rows)
        if self._key is None:
            return None, seen
        if rows is not found.rows:
            seen = self._of_owners(seen, owners, found.rows.count)
        keys = self._key.together(found.rows)
        if not found.gone_places:
            return keys, seen
        places, count = [*found.places, *found.gone_places], len(given.bodies)
        keys += self._key.together(found.gone)
        return spread_out(keys, places, count), spread_out(seen, found.places, count)

    def _of_owners(
        self, seen: Sequence[bytes | None], owners: Sequence[int], count: int
    ) -> list[bytes | None]:
        """What is kept of so many rows; `owners`: of each that is seen the one that it came of."""
        found: list[list[bytes]] = [[] for _ in range(count)]
        for at, one in zip(owners, seen, strict=True):
            if one is not None:
                found[at].append(one)
        return [self._kept(one) for one in found]


def groups(view: ViewPlan, number: int, environment: Environment) -> Merging:
    """The groups of a stage, whose rows go to the next one, or into the target."""
    stage = view.stages[number]
    if number + 1 == len(view.stages):
        finish = _written(view, environment)
    else:
        finish = _passed_on(view.stages[number + 1], environment)
    if isinstance(stage, Ranking):
        return Ranks(stage, finish)
    return (Groups if stage.window is None else WindowGroups)(stage, finish)


def _passed_on(following: Stage, environment: Environment) -> Finish:
    intake = Intake(following, environment)

    def finish(row: Row) -> bytes | None:
        seen = intake(row)
        return None if seen is None else pack(seen)

    return finish


def _written(view: ViewPlan, environment: Environment) -> Finish:
    """Rows of the target as JSON."""
    compiled = program(view.shared, environment)
    having = compiled(view.having) if view.having is not None else None
    outputs = Outputs(view.outputs, compiled, view.times, drops=view.drops_nulls)

    def finish(row: Row) -> bytes | None:
        if having is not None and not holds(having, row, "HAVING"):
            return None
        body = outputs(row)
        return None if body is None else encode(body)

    return finish


def key_of(view: ViewPlan, body: bytes) -> bytes:
    """The key columns of a row of the target, by which it is deleted."""
    return encode({name: one for name, one in parse(body).items() if name in view.key_names})


def named_group(view: ViewPlan, group: bytes, number: int) -> str:
    """A group for people: its values."""
    stage = view.stages[number]
    return str(Codec([one.type for one in stage.keys]).unpack(group[stage.front :]))


def _passed(record: Record) -> Record | None:
    if "operation" not in record.metadata:
        raise RejectedRecord(
            "step", "the query keeps state: what a record changes is not told by the record alone"
        )
    return None if isinstance(record.body, NotJson) else record


class ViewRows(Step):
    """The rows of a view on their way into the target. Made by the manifest language `sql`."""

    type: ClassVar[str] = "view"
    examples: ClassVar[tuple[Example, ...]] = ()
    view: InstanceOf[ViewPlan]
    text: str = ""
    """The INSERT as it is written, for people."""

    @override
    def compile(self, context: Context) -> Apply:
        return _passed

    @override
    def reads(self) -> frozenset[str]:
        return frozenset({"operation"})

    @override
    def origins(self, column: str) -> Origins:
        return self.view.origins(column)
