"""Columns that a table has and a target lacks: added there, or reported with what to run."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pyarrow as pa

from dataflow_assets import failpoints
from dataflow_assets.contracts import AddsColumns, Kind, Note, TargetTable, kind_of
from dataflow_assets.errors import NewColumns, PermanentError, blame
from dataflow_assets.flow import Flow
from dataflow_assets.runs.branch_turns import OpenBranch
from dataflow_assets.runs.create_table import narrow
from dataflow_assets.sdk.upsert_options import SoftDeleteOptions

log = logging.getLogger(__name__)


def meet(flow: Flow, error: NewColumns, branches: Sequence[OpenBranch]) -> None:
    """Adds the columns to the target that lacks them, where the source says so.

    Called by the loop on the driver when a pass has ended with this error.

    Args:
        flow: with its secrets in place.
        error: of the branch that it names.
        branches: those of the pass.

    Raises:
        PermanentError: nothing is to be added, with the statement to run; or a column may be an old
            one under a new name.
        TransientError: the target cannot be reached, or is locked.
    """
    opened = next((one for one in branches if one.branch.id == error.branch), None)
    if opened is None or not error.columns:
        raise error
    columns = narrow(pa.ipc.read_schema(pa.py_buffer(error.columns)))
    table = opened.session.table
    with blame(opened.branch.id):
        if flow.source.traits.new_columns != "add" or not isinstance(table, AddsColumns):
            advice = f". To add them, run{run}" if (run := _statement(table, columns)) else ""
            raise PermanentError(f"{error}{advice}")
        _check_renamed(opened, columns, error.gone)
        _check_filled(opened, table, columns)
        failpoints.reach("drain.new-columns")
        table.add_columns(columns)
        _check_added(opened, columns)
    failpoints.reach("drain.columns-added")
    log.warning(
        "flow %s: %s has got the columns %s. Rows that were stored before have no values in them, "
        "unless the source has given all of them the same one",
        flow.id,
        opened.branch.address,
        ", ".join(columns.names),
    )


def _check_added(opened: OpenBranch, columns: pa.Schema) -> None:
    schema = opened.session.table.schema()
    lacked = set(columns.names) - set(schema.names if schema else ())
    if lacked:
        raise PermanentError(
            f"{opened.branch.address} does not take values of {', '.join(sorted(lacked))}, which "
            "the source delivers: a column of that name is there that cannot be written to. Rename "
            "it in the target"
        )


def _check_renamed(opened: OpenBranch, columns: pa.Schema, gone: Sequence[str]) -> None:
    """A column that is gone at the source and a new one of its type may be one that was renamed.

    The log does not tell, and the values that are stored would stay under the old name. A column of
    the target with a default may be the target's own, which no source has had; but one that the
    source has filled keeps that value under its new name, and so has the default of the old one.
    """
    schema, sink = opened.session.table.schema(), opened.branch.sink
    soft = sink.soft_delete_column if isinstance(sink, SoftDeleteOptions) else None
    old = [schema.field(name) for name in gone if schema is not None and name != soft]
    for new in columns:
        filled = Note.FILLED.marks(new)
        for field in old:
            own = Note.HAS_DEFAULT.marks(field) and not filled
            if not own and _family(field) == _family(new):
                raise PermanentError(
                    f"the source delivers {new.name}, which {opened.branch.address} lacks, and "
                    f"no {field.name} any more, which it has: if the column was renamed, rename "
                    f"{field.name} to {new.name} in the target too. If {new.name} is another "
                    f"column, add it by hand{_statement(opened.session.table, columns)}"
                )


def _check_filled(opened: OpenBranch, table: AddsColumns, columns: pa.Schema) -> None:
    """The source has filled the column in rows that are there, and delivers none of them for it."""
    filled = [field for field in columns if Note.FILLED.marks(field)]
    if not filled or table.fills_columns or not opened.session.table.holds_rows():
        return
    values = ", ".join(f"{field.name} ({Note.FILLED.of(field)!r})" for field in filled)
    raise PermanentError(
        f"the source has added columns with a value for all rows that are there, which its log "
        f"does not have: {values}. {opened.branch.address} would have none in its rows: add the "
        f"columns by hand with that value, or load the table again behind "
        f"that{_statement(opened.session.table, columns)}"
    )


def _statement(table: TargetTable, columns: pa.Schema) -> str:
    statement = table.statement(columns) if isinstance(table, AddsColumns) else ""
    return f": {statement}" if statement else ""


def _family(field: pa.Field) -> str:
    kind = kind_of(field)
    if kind == Kind.NUMERIC or pa.types.is_decimal(field.type) or pa.types.is_floating(field.type):
        return "number"
    if pa.types.is_integer(field.type):
        return "integer"
    if pa.types.is_timestamp(field.type):
        return "timestamp"
    return kind or str(field.type)
