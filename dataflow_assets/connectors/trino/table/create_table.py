"""CREATE TABLE from a sample, in the types that the catalog has: it is asked, not known by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from dataflow_assets.connectors.trino import types
from dataflow_assets.connectors.trino.client import TrinoClient, literal, quote
from dataflow_assets.connectors.trino.errors import DENIED, TrinoFailure
from dataflow_assets.connectors.trino.options import TrinoSinkOptions
from dataflow_assets.connectors.trino.table.stage import drop
from dataflow_assets.connectors.trino.table.table import TrinoPlace, find
from dataflow_assets.connectors.trino.type_names import TrinoType
from dataflow_assets.contracts import Kind
from dataflow_assets.errors import PermanentError
from dataflow_assets.records.wrapped import METADATA
from dataflow_assets.sdk.raw_rows import DATA
from dataflow_assets.sdk.types.comments import COMMENTS

MARK = "timestamp(6) with time zone"  # when the row of a key was deleted
_TIMES = ("time", "timestamp")


def create(
    client: TrinoClient, sink: TrinoSinkOptions, place: TrinoPlace, sample: pa.Schema
) -> None:
    """Makes the target unless a racing flow has. Raises Failure."""
    if not sink.auto_create_table:
        raise sink.no_table()
    fields = sink.raw_columns(sample) if sink.raw_mode else _columns(sink, sample)
    wanted = {f.name: sink.columns.get(f.name) or types.declaration(f) for f in fields}
    wanted |= {name: kind for name, kind in sink.columns.items() if name not in wanted}
    if sink.soft is not None:
        wanted.setdefault(sink.soft, MARK)
    if not wanted:
        raise sink.no_columns()
    _refuse_capitals(sink, wanted)
    docs = {f.name: _doc(sink, f) for f in fields}
    kinds = supported_types(client, place, wanted, frozenset(sink.columns))
    docs = {n: d for n, d in docs.items() if d and TrinoType.of(kinds[n]).name == "varchar"}
    _make(client, place, kinds, docs)


def _columns(sink: TrinoSinkOptions, sample: pa.Schema) -> list[pa.Field]:
    """The sample's, sorted; the key's columns must be among them."""
    names = {*sample.names, *sink.columns}
    if missing := [name for name in sink.key if name not in names]:
        raise PermanentError(
            f"table {sink.address().name} cannot be made: {', '.join(missing)} of conflictKey is "
            "in none of the first records; name it under `columns` with its type"
        )
    return sorted(sample, key=lambda field: field.name)


def _doc(sink: TrinoSinkOptions, field: pa.Field) -> str:
    if sink.raw_mode and field.name == METADATA:
        return COMMENTS[Kind.JSON]
    return "" if field.name == DATA and sink.raw_mode else types.doc(field)


def _refuse_capitals(sink: TrinoSinkOptions, names: Iterable[str]) -> None:
    """Records would have no column afterwards: Trino has all names in small letters."""
    if capitals := [name for name in names if name != name.lower()]:
        raise PermanentError(
            f"table {sink.address().name} cannot be made: Trino has all names of columns in small "
            f"letters, and the records have {', '.join(capitals)}; rename them with a step "
            "`snakeCase` or `replaceField`"
        )


def supported_types(
    client: TrinoClient,
    place: TrinoPlace,
    wanted: dict[str, str],
    declared: frozenset[str] = frozenset(),
) -> dict[str, str]:
    """The types that the catalog makes of these; text where it has none that loses nothing.

    Found by making an empty table and looking at it. Raises Failure.

    Args:
        client: of the sink.
        place: beside which the empty table is made.
        wanted: by column.
        declared: the columns whose types a person has chosen.

    Raises:
        PermanentError: Trino knows no such type as one that was declared.
    """
    try:
        actual = _try_types(client, place, wanted)
    except TrinoFailure as failure:
        if failure.transient or failure.name == DENIED:
            raise
        actual = {
            name: _alone(client, place, kind, name if name in declared else "")
            for name, kind in wanted.items()
        }
    return {name: _lossless(kind, actual[name]) for name, kind in wanted.items()}


def _alone(client: TrinoClient, place: TrinoPlace, kind: str, declared: str) -> str:
    try:
        return _try_types(client, place, {"c": kind})["c"]
    except TrinoFailure as failure:
        if failure.transient or failure.name == DENIED:
            raise
        if declared and failure.name != "NOT_SUPPORTED":
            raise PermanentError(
                f"columns.{declared}: Trino does not take the type {kind}: {failure.reason}"
            ) from None
        return "varchar"


def _try_types(client: TrinoClient, place: TrinoPlace, wanted: dict[str, str]) -> dict[str, str]:
    import uuid

    trial = place.beside(f"dataflow_types_{uuid.uuid4().hex[:12]}")
    values = ", ".join(f"CAST(NULL AS {kind}) AS {quote(name)}" for name, kind in wanted.items())
    try:
        client.run(f"CREATE TABLE {trial.quoted_name} AS SELECT {values} WITH NO DATA")
        table = find(client, trial)
    finally:
        drop(client, trial)
    return {column.name: column.type for column in table.columns} if table else {}


def _lossless(wanted: str, made: str) -> str:
    one, other = TrinoType.of(wanted), TrinoType.of(made)
    cut = one.name.startswith(_TIMES) and other.name == one.name and other.digits < one.digits
    return "varchar" if cut else made


def _make(
    client: TrinoClient, place: TrinoPlace, kinds: dict[str, str], docs: dict[str, str]
) -> None:
    def column_list(comments: Sequence[str]) -> str:
        pairs = zip(kinds.items(), comments, strict=True)
        return ", ".join(f"{quote(name)} {kind}{comment}" for (name, kind), comment in pairs)

    notes = [f" COMMENT {literal(docs[name])}" if name in docs else "" for name in kinds]
    try:
        client.create(f"CREATE TABLE IF NOT EXISTS {place.quoted_name} ({column_list(notes)})")
    except TrinoFailure as failure:
        if failure.transient or not docs:
            raise
        client.create(
            f"CREATE TABLE IF NOT EXISTS {place.quoted_name} ({column_list([''] * len(kinds))})"
        )
