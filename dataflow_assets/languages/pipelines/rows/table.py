"""A table as the statements of a file declare it."""

from __future__ import annotations

from dataclasses import dataclass

from dataflow_assets.errors import PermanentError
from dataflow_assets.languages.pipelines.rows.expressions import Expression
from dataflow_assets.languages.pipelines.rows.types import JSON, TEXT, PipelineType


@dataclass(frozen=True)
class PipelineColumn:
    """One column; `computed`: its value follows from other columns of the row."""

    name: str
    type: PipelineType
    nullable: bool = True
    computed: Expression | None = None

    def differs(self, place: tuple[str, str]) -> PermanentError:
        """The error for a stored column that is computed where this one is not, or the reverse."""
        has, other = (
            ("a plain", "computed") if self.computed is not None else ("a computed", "plain")
        )
        return PermanentError(
            f"column {self.name} of table {'.'.join(place)} is {has} column, and the file declares "
            f"it as {other}: drop the column, and it is made as declared, or give it another name"
        )


@dataclass(frozen=True)
class Index:
    """An index of a table."""

    name: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class PipelineTable:
    """Columns in their order, and indexes."""

    columns: tuple[PipelineColumn, ...]
    indexes: tuple[Index, ...] = ()
    key: tuple[str, ...] = ()
    """By which rows replace each other; empty where they are appended."""

    @property
    def insertable_columns(self) -> tuple[PipelineColumn, ...]:
        return tuple(one for one in self.columns if one.computed is None)

    @property
    def computed_columns(self) -> tuple[PipelineColumn, ...]:
        return tuple(one for one in self.columns if one.computed is not None)

    def find(self, name: str) -> PipelineColumn | None:
        return next((one for one in self.columns if one.name.lower() == name.lower()), None)


STATIC = (
    PipelineColumn("topic", TEXT, nullable=False),
    PipelineColumn("id", JSON, nullable=False),
    PipelineColumn("record", JSON, nullable=False),
)
"""The columns of a table that an inferred pipeline makes."""
