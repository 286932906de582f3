"""The plan of one INSERT: its work on each message, made when a file is loaded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from dataflow_assets.languages.sql.engine.bytes.layout import FlinkLayout, Times
from dataflow_assets.languages.sql.engine.expressions import Expression, columns
from dataflow_assets.languages.sql.engine.metadata import metadata_of_key
from dataflow_assets.languages.sql.engine.types import FlinkType
from dataflow_assets.languages.sql.engine.unnest import Unnest, origins_of

KEY = "key"
"""Under which the metadata of a record has its key."""


@dataclass(frozen=True)
class Cell:
    """The origin of a column of the source's row."""

    name: str
    place: Literal["value", "key", "metadata"]
    at: int = 0
    """In the layout of the value, or of the key."""
    key_at: int | None = None
    """Of a column that is in both: where it is in the key."""
    metadata: str = ""
    type: FlinkType | None = None
    """Of metadata, as the column is declared."""

    @property
    def of_key(self) -> bool:
        """Returns whether a record without a value has it too."""
        return self.place == "key" or self.key_at is not None


def metadata_of(cells: Iterable[Cell], *, key: bool) -> frozenset[str]:
    """The metadata that a source must read for these cells, and for keys that are decoded."""
    keys = (metadata_of_key(one.metadata) for one in cells if one.place == "metadata")
    return frozenset({KEY} if key else ()).union(*keys)


@dataclass(frozen=True)
class FlinkOutput:
    """A column of the target."""

    name: str
    expression: Expression
    nullable: bool = True
    key: bool = False
    """Part of the target's PRIMARY KEY."""
    metadata: str = ""
    """The key of the METADATA that it is; else it is in the bytes of the record."""


@dataclass(frozen=True)
class FlinkPlan:
    """The work of one INSERT on each message. Made when a file is loaded."""

    value: FlinkLayout
    key: FlinkLayout | None
    cells: tuple[Cell, ...]
    outputs: tuple[FlinkOutput, ...]
    where: Expression | None = None
    key_where: Expression | None = None
    """The part of `where` that says the same of each state of a row, whenever it is asked: it looks
    at nothing but the key. Of a row for which it does not hold nothing was ever written."""
    shared: tuple[Expression, ...] = ()
    """What several expressions need, computed once for a row; each may need those before it."""
    changelog: bool = False
    """A message replaces the one of the same key, and a null one deletes it."""
    times: Times = "RFC-3339"
    """How times are written for the target."""
    drops_nulls: bool = False
    """`table.exec.sink.not-null-enforcer` = DROP."""
    zone: str = "UTC"
    unnests: tuple[Unnest, ...] = ()
    """What makes several rows of a message; all other expressions are over these rows."""

    def reads(self, expression: Expression) -> Iterator[Cell]:
        places = origins_of(self.unnests, columns(expression, self.shared))
        return (self.cells[at] for at in sorted(places))
