"""Tables and INSERTs of a file as one target has them: names, types, expressions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dataflow_assets.languages.common.keys import suggest
from dataflow_assets.languages.common.tokens import Place, Unreadable
from dataflow_assets.languages.pipelines.reader import syntax
from dataflow_assets.languages.pipelines.reader.bind import Scope, bound
from dataflow_assets.languages.pipelines.reader.declare import DeclaredTable
from dataflow_assets.languages.pipelines.rows.expressions import (
    Expression,
    Extract,
    Form,
    PipelineConstant,
    is_json,
)
from dataflow_assets.languages.pipelines.rows.expressions import (
    PipelineColumnReference as Reference,
)
from dataflow_assets.languages.pipelines.rows.rows import PipelineOutput, PipelineRow
from dataflow_assets.languages.pipelines.rows.table import (
    STATIC,
    Index,
    PipelineColumn,
    PipelineTable,
)
from dataflow_assets.languages.pipelines.rows.types import TEXT

_MOMENTS = ("date", "datetime")
BATCH: Scope = {one.name: Reference(one.name, one.type.kind == "json") for one in STATIC}
"""What each record of a source is delivered as."""


@dataclass(frozen=True)
class PipelineNames:
    """Spells the names of a file as a target does."""

    folds: bool
    """True: in small letters, as PostgreSQL reads a name without quotes."""

    def of(self, name: str) -> str:
        return name.lower() if self.folds else name


def table_of(declared: DeclaredTable, names: PipelineNames) -> PipelineTable:
    """The table for its sink. Raises Unreadable."""
    plain: Scope = {
        one.name.text.lower(): Reference(names.of(one.name.text), one.type.kind == "json")
        for one in declared.columns
        if one.computed is None
    }
    keyed = [one.text.lower() for one in declared.key]
    columns = tuple(
        replace(one, nullable=False) if one.name.lower() in keyed else one
        for one in (_column(one, names, plain) for one in declared.columns)
    )
    key = tuple(one.name for name in keyed for one in columns if one.name.lower() == name)
    indexes = tuple(
        Index(names.of(one.name.text), tuple(names.of(name.text) for name in one.columns))
        for one in declared.indexes
    )
    return PipelineTable(columns, indexes, key)


def _column(
    column: syntax.PipelineColumnDefinition, names: PipelineNames, plain: Scope
) -> PipelineColumn:
    name = names.of(column.name.text)
    if column.computed is None:
        return PipelineColumn(name, column.type, column.nullable)
    expression = bound(column.computed, plain)
    if column.type.kind in _MOMENTS:
        message = f"a computed column of {column.type} is not supported: compute a VARCHAR"
        raise Unreadable(column.name.place, message)
    if column.type.kind == "json" and not is_json(expression):
        message = "a computed column of JSON must be made by :: or JSON_EXTRACT_JSON"
        raise Unreadable(column.name.place, message)
    kind = TEXT if column.type.kind == "text" else column.type
    return PipelineColumn(name, kind, computed=expression)


def mapped_row(
    mapped: Sequence[syntax.Mapped], declared: DeclaredTable, table: PipelineTable, place: Place
) -> PipelineRow:
    """The row of FORMAT AVRO (column <- path, ...); without it columns go by their names."""
    if table.key:
        message = f"{declared.name} has a PRIMARY KEY: fill it by a procedure, with INSERT ... ON "
        raise Unreadable(place, f"{message}DUPLICATE KEY UPDATE")
    if not mapped:
        outputs = [
            _column_output(column, BATCH[column.name.lower()])
            for column in table.insertable_columns
            if column.name.lower() in BATCH
        ]
        if not outputs:
            message = f"{declared.name} has none of the columns topic, id and record: say which "
            raise Unreadable(place, f"{message}columns are filled, by FORMAT AVRO (c <- path, ...)")
        return PipelineRow(_complete(outputs, table))
    return PipelineRow(_complete([_map(one, table) for one in mapped], table))


def _map(one: syntax.Mapped, table: PipelineTable) -> PipelineOutput:
    column = _insertable_column(one.column, table)
    first, *rest = one.path
    if first.lower() not in BATCH:
        message = f"no part {first} in what is delivered; {suggest(first, BATCH)}"
        raise Unreadable(one.column.place, message)
    extract: Expression = BATCH[first.lower()]
    if rest:
        form: Form = "JSON" if column.type.kind == "json" else "STRING"
        extract = Extract(form, extract, tuple(rest))
    return _column_output(column, extract)


def inserted_row(
    insert: syntax.PipelineInsert, batch: Scope, declared: DeclaredTable, table: PipelineTable
) -> PipelineRow:
    """The row of INSERT INTO ... SELECT. Raises Unreadable."""
    columns = (
        [_insertable_column(one, table) for one in insert.columns]
        if insert.columns
        else list(table.insertable_columns)
    )
    if len(columns) != len(insert.selected):
        message = (
            f"the SELECT has {len(insert.selected)} columns, and {declared.name} takes "
            f"{len(columns)}: {', '.join(one.name for one in columns)}"
        )
        raise Unreadable(insert.place, message)
    outputs = [
        _column_output(column, bound(node, batch))
        for column, node in zip(columns, insert.selected, strict=True)
    ]
    _check_key(insert, [one.name for one in outputs], declared, table)
    return PipelineRow(_complete(outputs, table))


def _check_key(
    insert: syntax.PipelineInsert,
    filled: Sequence[str],
    declared: DeclaredTable,
    table: PipelineTable,
) -> None:
    """With a key each row is a whole one, which replaces that of the same key."""
    updated = insert.updated
    if updated is None and not table.key:
        return
    if not table.key:
        message = f"ON DUPLICATE KEY UPDATE needs a PRIMARY KEY of {declared.name}"
        raise Unreadable(insert.place, message)
    others = [one.name for one in table.insertable_columns if one.name not in table.key]
    names = sorted(name.text.lower() for name in updated or ())
    if names != sorted(name.lower() for name in others):
        clause = ", ".join(f"{name} = VALUES({name})" for name in others)
        message = f"{declared.name} has a PRIMARY KEY, by which rows replace each other"
        raise Unreadable(insert.place, f"{message}: write ON DUPLICATE KEY UPDATE {clause}")
    if missing := [one.name for one in table.insertable_columns if one.name not in filled]:
        message = f"{', '.join(missing)} of {declared.name} is not filled: a row must be whole"
        raise Unreadable(insert.place, f"{message} where it replaces another one")


def batch_scope(
    columns: Sequence[syntax.PipelineColumnDefinition], mapped: Sequence[syntax.Mapped]
) -> Scope:
    """The columns of a procedure's batch: by FORMAT, else in the order of topic, id, record."""
    scope: dict[str, Reference] = {}
    paths = {one.column.text.lower(): one for one in mapped}
    for at, column in enumerate(columns):
        name = column.name.text.lower()
        json_path = paths.get(name)
        if mapped and json_path is None:
            message = f"FORMAT does not fill {column.name.text}, a column of the batch"
            raise Unreadable(column.name.place, message)
        path = json_path.path if json_path else ([*BATCH][at] if at < len(BATCH) else name,)
        if len(path) > 1 or path[0].lower() not in BATCH:
            message = f"{column.name.text} must be topic, id or record as a whole"
            raise Unreadable(json_path.column.place if json_path else column.name.place, message)
        delivered = BATCH[path[0].lower()]
        if delivered.is_json != (column.type.kind == "json"):
            kind = "JSON" if delivered.is_json else "a text"
            raise Unreadable(column.name.place, f"{path[0]} is {kind}, and not {column.type}")
        scope[name] = delivered
    return scope


def _insertable_column(name: syntax.PipelineName, table: PipelineTable) -> PipelineColumn:
    column = table.find(name.text)
    names = [one.name for one in table.insertable_columns]
    if column is None:
        raise Unreadable(name.place, f"no column {name.text}; {suggest(name.text, names)}")
    if column.computed is not None:
        raise Unreadable(name.place, f"{name.text} is computed: it cannot be filled")
    return column


def _column_output(column: PipelineColumn, expression: Expression) -> PipelineOutput:
    return PipelineOutput(column.name, column.type, expression, column.nullable)


def _complete(
    outputs: Sequence[PipelineOutput], table: PipelineTable
) -> tuple[PipelineOutput, ...]:
    """With null for each column that is not filled."""
    filled: Mapping[str, PipelineOutput] = {one.name: one for one in outputs}
    return tuple(
        filled.get(one.name) or _column_output(one, PipelineConstant(None))
        for one in table.insertable_columns
    )


def computed_outputs(table: PipelineTable) -> Iterator[PipelineOutput]:
    """For a target that computes nothing itself."""
    for one in table.computed_columns:
        if one.computed is not None:
            yield PipelineOutput(one.name, one.type, one.computed)
