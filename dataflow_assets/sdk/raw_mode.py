"""Raw mode: whole bodies in a column `data`, the metadata beside them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, ClassVar

import pyarrow as pa
from pydantic import field_validator
from typing_extensions import override

from dataflow_assets.contracts import Kind, Sink, SinkTraits, kind_of
from dataflow_assets.errors import PermanentError
from dataflow_assets.records.wrapped import METADATA
from dataflow_assets.sdk.raw_rows import DATA, Flat, Raw, Sampled, Shape, Whole, has_default
from dataflow_assets.spec import Needs, Requires

_KEPT = frozenset({METADATA, "created_at", "updated_at", "deleted_at"})
"""Columns beside `data` that no body fills, whether they have a default or not."""
_CATEGORIES = (pa.bool_(), pa.int64(), pa.float64(), pa.timestamp("us", "UTC"))


class RawSink(Sink):
    """A sink with a raw mode."""

    own_columns: ClassVar[frozenset[str]] = frozenset({DATA, METADATA})
    """Columns that no metadata key may fill."""
    longest_name: ClassVar[int] = 255
    """Bytes of a column's name at most."""
    text_bodies: ClassVar[bool] = False
    """Whole bodies also go into a text column `data` where the table has no other column."""

    raw_mode: bool = False
    """Stores the whole body in the column `data`, and the metadata of the message in `_metadata`. A
    body `{"value": ..., "_metadata": {...}}` is divided into these two parts. A missing table is
    made when the flow opens; with `flattenMetadataColumns` or `upsertMode` by the first records."""
    flatten_metadata_columns: Annotated[bool, Requires("raw_mode")] = False
    """With `rawMode`: a column for each metadata key instead of `_metadata`."""
    flatten_metadata_columns_prefix: Annotated[str, Needs("flatten_metadata_columns")] = ""
    """Prefix of the names of those columns."""

    @field_validator("flatten_metadata_columns_prefix")
    @classmethod
    def _a_prefix(cls, value: str) -> str:
        if value and not re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", value):
            raise ValueError("must be letters, digits and _, not beginning with a digit")
        return value

    @property
    @override
    def traits(self) -> SinkTraits:
        sample = not self.raw_mode or self.flatten_metadata_columns or bool(self.raw_key)
        return replace(
            super().traits, unwraps=True, needs_sample=sample, whole_bodies=self.raw_mode
        )

    def shape(self, schema: pa.Schema | None) -> Shape | None:
        """Returns what is stored where it is not the body itself, in a table of these columns.

        Called inside tasks once for each slice, and on the driver when a branch opens.

        Args:
            schema: of the table; None for the shape from which a table that does not exist yet gets
                its types: values may then be times too.

        Raises:
            PermanentError where the table does not fit.
        """
        if not self.raw_mode:
            return self._whole(schema)
        if schema is None:
            return Sampled(self._prefix, self.raw_key)
        data = self._column(schema, DATA)
        if missing := [name for name in self.raw_key if name not in schema.names]:
            raise PermanentError(
                f"table {self.address().name} has no column {', '.join(missing)}, by which "
                "conflictKey matches rows: add it, with a unique index where upserts need one, "
                f"or write to a new table; it has {', '.join(schema.names)}"
            )
        if self.flatten_metadata_columns:
            if METADATA in map(str.casefold, schema.names):
                raise PermanentError(
                    f"table {self.address().name} has a column {METADATA}, which "
                    "flattenMetadataColumns does not write: leave the option out, or write to a "
                    "new table"
                )
            return Flat(data, schema, self._prefix, self._own, self.raw_key)
        return Raw(data, self._column(schema, METADATA), schema, self.raw_key)

    @property
    def raw_key(self) -> tuple[str, ...]:
        """The columns of metadata by which whole bodies replace each other; empty for appends."""
        return ()

    @property
    def _own(self) -> frozenset[str]:
        return self.own_columns - set(map(str.casefold, self.raw_key))

    def raw_columns(self, sample: pa.Schema) -> list[pa.Field]:
        """What a table made for raw mode has beside its bookkeeping; of the sample the metadata."""
        found = [_categorize(self._prefix, field) for field in sample]
        if not self.flatten_metadata_columns:
            return [*found, pa.field(DATA, pa.string()), pa.field(METADATA, pa.string())]
        columns = [field for field in found if self._nameable(field.name)]
        if not columns:
            own = ", ".join(sorted(self._own))
            raise PermanentError(
                f"table {self.address().name} cannot be made: flattenMetadataColumns, and the "
                f"first records have no metadata that can become columns (not: {own}); set "
                "flattenMetadataColumnsPrefix, or create the table"
            )
        return [pa.field(DATA, pa.string()), *sorted(columns, key=lambda field: field.name)]

    def _nameable(self, name: str) -> bool:
        fits = 0 < len(name.encode()) <= self.longest_name and name.isprintable()
        return fits and name.casefold() not in self._own

    @property
    def _prefix(self) -> str | None:
        return self.flatten_metadata_columns_prefix if self.flatten_metadata_columns else None

    def _whole(self, schema: pa.Schema | None) -> Shape | None:
        """Tables made for bodies, as raw mode makes them, take them without raw mode as well."""
        if schema is None or self.traits.upserts or self.unknown_fields == "ignore":
            return None
        if DATA not in schema.names or not all(map(_is_filled, schema)):
            return None
        data = schema.field(DATA)
        as_text = self.text_bodies and len(schema) == 1 and data.type == pa.string()
        return Whole(data, schema) if kind_of(data) == Kind.JSON or as_text else None

    def _column(self, schema: pa.Schema, name: str) -> pa.Field:
        found = [field for field in schema if field.name.casefold() == name]
        if not found:
            raise PermanentError(
                f"table {self.address().name} has no column {name}, which rawMode writes to; it "
                f"has {', '.join(schema.names)}: add the column, or write to a new table"
            )
        if found[0].type != pa.string() or kind_of(found[0]) not in (None, Kind.JSON):
            raise PermanentError(
                f"column {found[0].name} of table {self.address().name} must hold JSON or text for "
                "rawMode: change its type, or write to a new table"
            )
        return found[0]


def shape_of(sink: Sink, schema: pa.Schema | None) -> Shape | None:
    """Returns the shape of any sink; None where records are stored as their bodies.

    Called as `RawSink.shape`.
    """
    return sink.shape(schema) if isinstance(sink, RawSink) else None


def _is_filled(field: pa.Field) -> bool:
    return field.name == DATA or has_default(field) or (field.nullable and field.name in _KEPT)


def _categorize(prefix: str | None, field: pa.Field) -> pa.Field:
    """Integers are long but for the partition: the first values do not tell how they will grow."""
    if field.name == f"{prefix or ''}partition" and field.type == pa.int64():
        return pa.field(field.name, pa.int32())
    return pa.field(field.name, field.type if field.type in _CATEGORIES else pa.string())
