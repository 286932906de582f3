"""Typed rows in a sink's schema: a value that does not fit costs its row."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.contracts import ABSENT, SYSTEM_COLUMNS, Kind, Note, kind_of
from dataflow_assets.errors import NewColumns, PermanentError
from dataflow_assets.formats.conversions import convert
from dataflow_assets.formats.json_types import is_optional
from dataflow_assets.formats.rows import endless, moments, table_columns

_UNFIT = (pa.ArrowException, ValueError, ArithmeticError)

Refused = dict[int, str]
"""By row: the reason in words."""


@dataclass(frozen=True)
class Conformed:
    """Rows in the schema plus system columns, and the rows of the batch that did not fit."""

    rows: pa.RecordBatch
    refused: Refused


def conform(batch: pa.RecordBatch, schema: pa.Schema, unknown_fields: str = "reject") -> Conformed:
    """The batch with the schema's columns, by name, each value converted without loss.

    System columns are kept. A column that the batch lacks is null and marked in ABSENT, as are
    values that the batch itself marks, by the order of its own columns. Raises
    NewColumns when a column of a batch with rows is unknown to the schema (unless they are
    ignored), PermanentError when one that must be filled is missing.
    """
    fields = {field.name: field for field in table_columns(batch.schema)}
    _check(fields, schema, unknown_fields if batch.num_rows else "ignore")
    refused: Refused = {}
    no_nul = Note.NO_NUL.marks(schema)
    arrays = []
    absent = _absent_cells(batch, list(fields), schema)
    for index, field in enumerate(schema):
        array, unfit = _column(batch, fields.get(field.name), field, no_nul=no_nul)
        arrays.append(array)
        refused = {row: why for row, why in unfit.items() if not absent[row, index]} | refused
    rows = _assemble(batch, schema, arrays, absent)
    strict = pa.schema([*schema, *list(rows.schema)[len(schema) :]], schema.metadata)
    kept = _without(rows, refused)
    return Conformed(pa.RecordBatch.from_arrays(kept.columns, schema=strict), refused)


def fit(table: object, frame: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A frame's rows as a table stores them: by the rules of typed rows of flows.

    Called in the tasks of users' assets, for each batch. Text in a column of JSON, or of arrays and
    the like, is the JSON of a value.

    Args:
        table: as errors name it.
        frame: its columns, all of which the schema has.
        schema: the sink's, of these columns.

    Raises:
        PermanentError: a value that cannot be stored without loss; nothing of the frame is.
    """
    fields = [_as_json(column, schema.field(column.name)) for column in frame.schema]
    fitted = conform(pa.RecordBatch.from_arrays(frame.columns, schema=pa.schema(fields)), schema)
    for reason in fitted.refused.values():
        raise refusal(table, reason)
    return fitted.rows


def refusal(table: object, reason: str) -> PermanentError:
    """The error of a frame with a value that its table cannot hold."""
    return PermanentError(f"{table}: {reason}; cast it in the frame, or alter the table")


def _as_json(given: pa.Field, wanted: pa.Field) -> pa.Field:
    json_text = kind_of(wanted) == Kind.JSON or pa.types.is_nested(wanted.type)
    if pa.types.is_string(given.type) and json_text:
        return given.with_metadata(Kind.JSON.mark)
    return given


def _check(given: dict[str, pa.Field], schema: pa.Schema, unknown_fields: str) -> None:
    unknown = sorted(set(given) - set(schema.names))
    if unknown and unknown_fields == "reject":
        raise new_columns([given[name] for name in unknown], schema, given)
    missing = [f.name for f in schema if f.name not in given and not is_optional(f)]
    if missing:
        raise PermanentError(
            f"the target's columns {', '.join(missing)} must be filled, and the source has no such "
            f"columns: it has {', '.join(given)}"
        )


def new_columns(
    unknown: Sequence[pa.Field], schema: pa.Schema, given: Container[str]
) -> NewColumns:
    """The error that a target of this schema lacks some of its source's columns.

    Args:
        unknown: those that it lacks.
        schema: of the target.
        given: the names of all columns that the rows have.
    """
    columns = pa.schema(unknown, {Note.TYPED: b"1"})
    return NewColumns(
        f"the source delivers columns that the target lacks: {', '.join(columns.names)}; the "
        f"target has {', '.join(schema.names)}: add them, or set unknownFields: ignore",
        columns.serialize().to_pybytes(),
        tuple(name for name in schema.names if name not in given),
    )


def _absent_cells(
    batch: pa.RecordBatch, given: list[str], schema: pa.Schema
) -> npt.NDArray[np.bool_]:
    missing = np.array([field.name not in given for field in schema], np.bool_)
    absent = np.tile(missing, (batch.num_rows, 1))
    if ABSENT not in batch.schema.names or not batch.num_rows:
        return absent
    masks = batch.column(ABSENT).fill_null(b"").dictionary_encode()
    bits = np.array([_bits(mask, len(given)) for mask in masks.dictionary.to_pylist()])
    places = [given.index(name) if name in given else -1 for name in schema.names]
    own = np.column_stack([bits, np.zeros(len(bits), np.bool_)])[:, places]
    absent |= own[masks.indices.to_numpy()]
    return absent


def _bits(mask: bytes, width: int) -> npt.NDArray[np.bool_]:
    padded = np.frombuffer(mask.ljust(-(-width // 8), b"\0"), np.uint8)
    return np.unpackbits(padded, bitorder="little")[:width].astype(np.bool_)


def _column(
    batch: pa.RecordBatch, given: pa.Field | None, wanted: pa.Field, *, no_nul: bool
) -> tuple[pa.Array, Refused]:
    if given is None:
        return pa.nulls(batch.num_rows, wanted.type), {}
    array, refused = _convert(batch.column(given.name), given, wanted)
    for row, reason in _against_rules(array, wanted, no_nul=no_nul):
        refused.setdefault(row, f"column {wanted.name}: {reason}")
    return array, refused


def _convert(column: pa.Array, given: pa.Field, wanted: pa.Field) -> tuple[pa.Array, Refused]:
    try:
        return convert(column, given, wanted), {}
    except _UNFIT:
        pieces = list(_halve(column, given, wanted))
    refused: Refused = {}
    arrays, row = [], 0
    for array, reason in pieces:
        if reason:
            refused[row] = f"column {wanted.name}: {reason}"
        arrays.append(array)
        row += len(array)
    return pa.concat_arrays(arrays), refused


def _halve(
    column: pa.Array, given: pa.Field, wanted: pa.Field
) -> Iterator[tuple[pa.Array, str | None]]:
    """The values that do not fit, as null with the reason; the good halves stay whole."""
    try:
        yield convert(column, given, wanted), None
    except _UNFIT as error:
        half = len(column) // 2
        if half == 0:
            text = str(moments(column)[0] if pa.types.is_temporal(given.type) else column[0])
            shown = text if len(text) <= 60 else f"{text[:60]}..."
            reason = f"{shown} is not a valid {wanted.type}: {str(error).splitlines()[0][:200]}"
            yield pa.nulls(1, wanted.type), reason
            return
        # Copies: converters look at whole buffers of lists.
        yield from _halve(pa.concat_arrays([column[:half]]), given, wanted)
        yield from _halve(pa.concat_arrays([column[half:]]), given, wanted)


def _against_rules(array: pa.Array, field: pa.Field, *, no_nul: bool) -> Iterator[tuple[int, str]]:
    if not field.nullable and array.null_count:
        yield from ((row, "must not be null") for row in _rows(array.is_null()))
    yield from ((row, f"{text} cannot be stored") for row, text in _endless(array, field))
    if pa.types.is_string(field.type):
        longest = int(Note.MAX_LENGTH.of(field) or 0)
        if longest:
            long = pc.greater(pc.utf8_length(array), longest)
            yield from ((row, f"longer than {longest} characters") for row in _rows(long))
        if no_nul and _may_hold_nul(array):
            holds = pc.match_substring(array, "\x00")
            yield from ((row, "holds the character NUL") for row in _rows(holds))


def _endless(array: pa.Array, field: pa.Field) -> Iterator[tuple[int, str]]:
    """Which rows hold a moment, also in a list or a struct, that the column has no value for."""
    if pa.types.is_list(field.type):
        parents = pc.list_parent_indices(array).to_numpy()
        inner = _endless(pc.list_flatten(array), field.type.value_field)
        yield from ((int(parents[place]), text) for place, text in inner)
    elif pa.types.is_struct(field.type):
        for index, child in enumerate(field.type):
            yield from _endless(array.field(index), child)
    elif pa.types.is_temporal(field.type) and not Note.INFINITE.marks(field):
        yield from endless(array).items()


def _may_hold_nul(array: pa.Array) -> bool:
    _, _, data = array.buffers()
    return data is not None and 0 in np.frombuffer(data, np.uint8)


def _rows(mask: pa.Array) -> list[int]:
    rows: list[int] = np.flatnonzero(
        pc.fill_null(mask, False).to_numpy(zero_copy_only=False)
    ).tolist()
    return rows


def _assemble(
    batch: pa.RecordBatch, schema: pa.Schema, arrays: list[pa.Array], absent: npt.NDArray[np.bool_]
) -> pa.RecordBatch:
    fields = list(schema)
    for name in SYSTEM_COLUMNS:
        if name in batch.schema.names and name != ABSENT:
            fields.append(batch.schema.field(name))
            arrays.append(batch.column(name))
    if absent.any():
        fields.append(pa.field(ABSENT, pa.binary()))
        packed = np.packbits(absent, axis=1, bitorder="little")
        data = pa.py_buffer(packed.tobytes())
        fixed = pa.Array.from_buffers(pa.binary(packed.shape[1]), len(packed), [None, data])
        arrays.append(fixed.cast(pa.binary()))
    # Nullable while the refused rows are still in it.
    loose = pa.schema([field.with_nullable(True) for field in fields], schema.metadata)
    return pa.RecordBatch.from_arrays(arrays, schema=loose)


def _without(rows: pa.RecordBatch, refused: Refused) -> pa.RecordBatch:
    if not refused:
        return rows
    keep = np.ones(rows.num_rows, bool)
    keep[list(refused)] = False
    return rows.filter(pa.array(keep))
