"""The plan of an INSERT with state: made when a file is loaded, sent to the tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from dataflow_assets.languages.sql.engine.bytes.layout import ChangeLayout, FlinkLayout, Times
from dataflow_assets.languages.sql.engine.expressions import Expression, columns
from dataflow_assets.languages.sql.engine.plan import Cell, FlinkOutput
from dataflow_assets.languages.sql.engine.ranking import Ranking
from dataflow_assets.languages.sql.engine.stages import FlinkStage
from dataflow_assets.languages.sql.engine.types import FlinkType
from dataflow_assets.languages.sql.engine.united import TableRows
from dataflow_assets.languages.sql.engine.unnest import Unnest
from dataflow_assets.languages.sql.engine.values import pack, unpack
from dataflow_assets.languages.sql.engine.windows import FlinkWindows


@dataclass(frozen=True)
class ViewPlan:
    """A query with state. Made when a file is loaded, sent to the tasks."""

    value: FlinkLayout
    key: FlinkLayout | None
    cells: tuple[Cell, ...]
    stages: tuple[FlinkStage, ...]
    outputs: tuple[FlinkOutput, ...]
    having: Expression | None = None
    """Over the columns of the last stage."""
    primary: tuple[tuple[int, FlinkType], ...] = ()
    """Of an upsert table the places of its PRIMARY KEY in a row; empty: rows only come."""
    times: Times = "RFC-3339"
    drops_nulls: bool = False
    zone: str = "UTC"
    shared: tuple[Expression, ...] = ()
    """What `having` and `outputs` have in common."""
    windows: FlinkWindows | None = None
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
        """Returns whether rows of the table are replaced and deleted."""
        return bool(self.primary)

    @property
    def counts_rows(self) -> bool:
        """Returns whether rows go without a key, so that it is known which of them have come.

        Where rows are forgotten that is not known: one that goes then may be one of these.
        """
        captured = isinstance(self.value, ChangeLayout)
        return captured and not self.primary and not self.expires

    @property
    def several(self) -> bool:
        """Returns whether the first stage may see several rows of one of the table, or none."""
        return self.windows is not None or bool(self.unnests)

    def keep(self, seen: Sequence[bytes]) -> bytes | None:
        """Returns what `rows` keeps of a row of an upsert table; None: nothing.

        Args:
            seen: what the first stage sees of it.
        """
        if not seen:
            return None
        return pack(seen) if self.several else seen[0]

    def rows_of(self, kept: bytes) -> Sequence[bytes]:
        rows: Sequence[bytes] = unpack(kept) if self.several else [kept]
        return rows

    @property
    def remembers(self) -> bool:
        """Returns whether the state has all rows of the target.

        Rows of windows that have ended, and those that have expired, are in the target alone.
        """
        return self.stages[-1].window is None and not self.expires

    @cached_property
    def key_names(self) -> frozenset[str]:
        """The columns of the target that rows are matched by."""
        return frozenset(one.name for one in self.outputs if one.key)

    def reads(self, table: TableRows) -> frozenset[str]:
        """The metadata of the messages of a table that it needs."""
        return table.metadata() | {"timestamp"} if self.changelog else table.metadata()

    def origins(self, name: str) -> frozenset[str] | None:
        """The columns of the table that a column of the target is made of."""
        output = next((one for one in self.outputs if one.name == name), None)
        if output is None:
            return None
        places = columns(output.expression, self.shared)
        for stage in reversed(self.stages):
            inner = list(_looked_at(stage))
            places = frozenset[int]().union(*(inner[at] for at in places))
        if self.united:
            return None  # its name alone would not say of which table it is
        places = self.tables[0].origins_of(places)
        if self.windows is not None and any(at >= len(self.cells) for at in places):
            places |= columns(self.windows.time)
        cells = (self.cells[at] for at in places if at < len(self.cells))
        return frozenset(one.name for one in cells if one.place != "metadata")


def _looked_at(stage: FlinkStage) -> Iterator[frozenset[int]]:
    parts: list[tuple[Expression | None, ...]] = [(one,) for one in stage.keys]
    parts += [(one.argument, one.condition) for one in stage.calls]
    for some in parts:
        places = (columns(one, stage.shared) for one in some if one is not None)
        yield frozenset[int]().union(*places)
    if isinstance(stage, Ranking):
        yield frozenset[int]().union(*(columns(one, stage.shared) for one in stage.numbered_by))
