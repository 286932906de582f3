"""One branch inside the pass, and what takes messages to it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Literal

import pyarrow as pa

from dataflow_assets.contracts import Chunk, NewColumnRule, Note, Sink, SinkTraits, Ticket
from dataflow_assets.flow import Flow
from dataflow_assets.formats.column_names import ColumnNames
from dataflow_assets.formats.json import JsonDecoder, Tombstones
from dataflow_assets.records.chain import Transformation
from dataflow_assets.records.step import Context
from dataflow_assets.records.wrapped import VALUE
from dataflow_assets.sdk.raw_mode import shape_of
from dataflow_assets.sdk.raw_rows import Shape


@dataclass(frozen=True)
class PassBranch:
    """One branch inside the pass. `routes`: the conditions that lead to it; None: no route's."""

    sink: Sink
    ticket: Ticket
    routes: tuple[str | None, ...] = (None,)
    new_columns: NewColumnRule = "reject"
    """What becomes of columns that the target lacks, as the source says."""

    @cached_property
    def traits(self) -> SinkTraits:
        return self.sink.traits

    @property
    def unknown_fields(self) -> Literal["reject", "ignore"]:
        """Returns what becomes of a field that the target has no column for."""
        return "ignore" if self.new_columns == "ignore" else self.sink.unknown_fields

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns by which the sink matches rows."""
        return tuple(json.loads(Note.KEY.of(self.ticket.schema) or "[]"))

    @property
    def unwraps(self) -> bool:
        """True where the object inside a wrapped body is stored: no column takes it as it is."""
        return self.traits.unwraps and VALUE not in self.ticket.schema.names

    @cached_property
    def _names(self) -> ColumnNames:
        return ColumnNames(self.ticket.schema.names)

    def column(self, name: str) -> str | None:
        """The target's column that a name means; None where there is none.

        Raises RejectedRecord where several could be meant.
        """
        if self.traits.ignores_case:
            return self._names.column(name)
        return name if name in self.ticket.schema.names else None

    def with_target_names(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Typed rows with the target's names for the columns that mean them."""
        return self._names.rename(rows) if self.traits.ignores_case else rows

    def shape(self) -> Shape | None:
        """Returns what is stored of a record, where that is not simply its body."""
        return shape_of(self.sink, self.ticket.schema)

    def decoder(self, mode: str, *, whole: bool = True) -> JsonDecoder:
        """Returns what turns JSON into the sink's columns.

        Args:
            mode: what a null message means.
            whole: columns that must be filled are required; else only those of the key are, for
                bodies of rows that their source does not know all of.
        """
        tombstones = Tombstones(mode, self.key_columns)  # type: ignore[arg-type]
        schema = self.ticket.schema
        if not whole:
            fields = [f if f.name in self.key_columns else _optional(f) for f in schema]
            schema = pa.schema(fields, schema.metadata)
        ignores = self.traits.ignores_case
        return JsonDecoder(schema, self.unknown_fields, tombstones, ignore_case=ignores)


def _optional(field: pa.Field) -> pa.Field:
    return field.with_metadata({**(field.metadata or {}), Note.HAS_DEFAULT: b"1"})


Read = Callable[[pa.RecordBatch], list[Chunk]]
"""A batch of messages as one chunk for each branch."""


@dataclass(frozen=True)
class BranchSteps:
    """The steps by which a task takes messages through records."""

    transformations: tuple[Transformation, ...]
    context: Context
    reads: frozenset[str]

    @property
    def by_metadata(self) -> bool:
        """True where steps only route records, by metadata: bodies stay as they were."""
        return all(one.by_metadata for one in self.transformations)

    @classmethod
    def of(cls, flow: Flow, now: datetime, shapes: Iterable[Shape | None]) -> BranchSteps | None:
        """The steps of a branch; None where columns are decoded straight from the messages."""
        reads = [shape.reads for shape in shapes if shape is not None]
        if not reads and not flow.transformations:
            return None
        return cls(flow.transformations, Context(now), flow.reads().union(*reads))
