"""INSERT INTO: the columns of a query into those of a table, and what state it would need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from dataflow_assets.languages.common.keys import suggest
from dataflow_assets.languages.common.tokens import Place, Unreadable
from dataflow_assets.languages.sql.engine.bytes.layout import Layouts, Times
from dataflow_assets.languages.sql.engine.expressions import (
    Expression,
    FlinkConstant,
    cast_to,
    columns,
    conjunction,
    conjuncts,
    lasting,
)
from dataflow_assets.languages.sql.engine.metadata import HEADER_LIST, HEADERS, METADATA, WRITABLE
from dataflow_assets.languages.sql.engine.plan import Cell, FlinkOutput, FlinkPlan
from dataflow_assets.languages.sql.engine.sharing import share
from dataflow_assets.languages.sql.engine.stages import FlinkStage
from dataflow_assets.languages.sql.engine.types import NULL, STRING, assignable
from dataflow_assets.languages.sql.engine.unnest import Unnest
from dataflow_assets.languages.sql.reader.changelogs import (
    check_changelog,
    check_conditions,
    check_unnested,
)
from dataflow_assets.languages.sql.reader.options import KAFKA
from dataflow_assets.languages.sql.reader.relation import Relation
from dataflow_assets.languages.sql.reader.syntax import FlinkColumnDefinition, FlinkInsert
from dataflow_assets.languages.sql.reader.tables import FlinkDeclared
from dataflow_assets.languages.sql.reader.windows import check_grouped

Parts = TypeVar("Parts", FlinkStage, Unnest)


def plan(
    insert: FlinkInsert, relation: Relation, target: FlinkDeclared, settings: Mapping[str, str]
) -> FlinkPlan:
    """Returns what the flow does with each message. Raises Unreadable."""
    table = relation.table
    layouts = readable(insert, relation)
    check_unnested(relation)
    check_conditions(relation)
    check_grouped(relation.windows, relation.stages, insert.query.place)
    outputs = outputs_of(insert, relation, target, settings)
    changelog = table.changes
    cells = tuple(cells_of(table))
    key_where = _of_deleted(relation) if changelog else None
    conditions = [one for one in (relation.where, key_where) if one is not None]
    parts, expressions = sharing(insert, [*conditions, *(one.expression for one in outputs)])
    computed = iter(expressions)
    built = FlinkPlan(
        value=layouts.value,
        key=layouts.key,
        cells=cells,
        where=next(computed) if relation.where is not None else None,
        key_where=next(computed) if key_where is not None else None,
        outputs=tuple(replace(one, expression=next(computed)) for one in outputs),
        shared=parts,
        changelog=changelog,
        times=times_of(target, insert),
        drops_nulls=settings.get("table.exec.sink.not-null-enforcer") == "DROP",
        zone=settings.get("table.local-time-zone", "UTC"),
        unnests=tuple(sharing_parts(insert, one) for one in relation.unnests),
    )
    if changelog:
        check_changelog(insert, relation, target, outputs, cells)
    return built


def sharing(
    insert: FlinkInsert, expressions: Sequence[Expression]
) -> tuple[tuple[Expression, ...], tuple[Expression, ...]]:
    """Returns what expressions have in common, and the expressions over that. Raises Unreadable."""
    try:
        return share(expressions)
    except ValueError as error:
        message = f"{error}: write what is inside into a topic of its own"
        raise Unreadable(insert.place, message) from None


def sharing_parts(insert: FlinkInsert, one: Parts) -> Parts:
    """Computes once what expressions of an insert have in common. Raises Unreadable."""
    parts, found = sharing(insert, one.expressions)
    return replace(one.over(found), shared=parts)


def readable(insert: FlinkInsert, relation: Relation) -> Layouts:
    """Returns what the records of the table are. Raises Unreadable for a table that is not read."""
    table = relation.table
    if table.layouts is None:
        message = f"{table.name} is a sink only: a query reads a table of kafka or upsert-kafka"
        raise Unreadable(insert.query.place, message)
    return table.layouts


def outputs_of(
    insert: FlinkInsert, relation: Relation, target: FlinkDeclared, settings: Mapping[str, str]
) -> tuple[FlinkOutput, ...]:
    """The columns of the target. Raises Unreadable."""
    _check_target(insert, target)
    trims = settings.get("table.exec.sink.type-length-enforcer") == "TRIM_PAD"
    return tuple(_outputs(insert, relation, target, trims=trims))


def _of_deleted(relation: Relation) -> Expression | None:
    """The conditions of WHERE that are asked of deleted rows, too.

    Of a row with a PRIMARY KEY those that look at the key alone, and say always the same of it;
    without one a deleted row is known as a whole.
    """
    table = relation.table
    if not table.table.key:
        return relation.where
    keys = {at for at, one in enumerate(table.stored_columns) if one.name in table.table.key}
    terms = [one for one in conjuncts(relation.where) if lasting(one) and columns(one) <= keys]
    return conjunction(terms)


def _check_target(insert: FlinkInsert, target: FlinkDeclared) -> None:
    if target.connector == KAFKA and target.changes:
        message = (
            f"the format of {target.name} is of changes, and such tables are only read: write into "
            "a table of upsert-kafka, whose records are upserts and deletes"
        )
        raise Unreadable(insert.table_place, message)
    for one in target.written_columns:
        if one.metadata is not None and one.metadata not in WRITABLE:
            message = (
                f"the column {one.name} is METADATA {one.metadata}, which cannot be written: "
                "declare it VIRTUAL"
            )
            raise Unreadable(insert.table_place, message)
    if sum(one.metadata in (HEADERS, HEADER_LIST) for one in target.written_columns) > 1:
        message = f"{target.name} has several columns of headers: declare all but one VIRTUAL"
        raise Unreadable(insert.table_place, message)
    if not target.physical:
        raise Unreadable(insert.table_place, f"{target.name} has no columns to write")


def _outputs(
    insert: FlinkInsert, relation: Relation, target: FlinkDeclared, *, trims: bool
) -> Iterator[FlinkOutput]:
    written = dict(_columns_in_order(insert, relation, target))
    for column in target.written_columns:
        place, found = written.get(column.name, (insert.place, FlinkConstant(NULL, None)))
        yield FlinkOutput(
            column.name,
            _fit(place, found, column, target, trims=trims),
            nullable=column.nullable and column.name not in target.table.key,
            key=column.name in target.table.key,
            metadata=column.metadata or "",
        )


def _columns_in_order(
    insert: FlinkInsert, relation: Relation, target: FlinkDeclared
) -> Iterator[tuple[str, tuple[Place, Expression]]]:
    names = [one.name for one in target.written_columns]
    for at, name in enumerate(insert.columns):
        if name in insert.columns[:at]:
            raise Unreadable(insert.table_place, f"the column {name} is written twice")
        if name not in names:
            message = f"no column {name} in {target.name}; {suggest(name, names)}"
            raise Unreadable(insert.table_place, message)
    order = list(insert.columns or names)
    if len(order) != len(relation.columns):
        message = (
            f"the query has {len(relation.columns)} columns, and {target.name} takes "
            f"{len(order)}: {', '.join(order)}"
        )
        raise Unreadable(insert.query.place, message)
    for name, (_, one), place in zip(order, relation.columns, relation.places, strict=True):
        yield name, (place, one)


def _fit(
    place: Place,
    expression: Expression,
    column: FlinkColumnDefinition,
    target: FlinkDeclared,
    *,
    trims: bool,
) -> Expression:
    kind = column.type or STRING
    if not assignable(expression.type, kind):
        name = f"{target.name}.{column.name}"
        message = f"is {expression.type}, and {name} is {kind}: write CAST(... AS {kind})"
        raise Unreadable(place, message)
    if expression.type.text and kind.text and not trims:
        return expression  # lengths are not enforced
    try:
        fitted = cast_to(expression, kind)
        return cast_to(fitted, METADATA[column.metadata]) if column.metadata else fitted
    except ValueError as error:
        raise Unreadable(place, str(error)) from None


def cells_of(table: FlinkDeclared) -> Iterator[Cell]:
    """Returns where the columns of a row come from."""
    layouts = table.layouts
    assert layouts is not None  # noqa: S101 - it was looked at
    in_value = [one for one in table.physical if _in_value(one, table)]
    places = {one.name: at for at, one in enumerate(in_value)}
    keys = {name: at for at, name in enumerate(layouts.key_columns)}
    for column in table.stored_columns:
        name = column.name
        if column.metadata is not None:
            yield Cell(name, "metadata", metadata=column.metadata, type=column.type)
        elif name in places:
            yield Cell(name, "value", places[name], key_at=keys.get(name))
        else:
            yield Cell(name, "key", keys[name])


def _in_value(column: FlinkColumnDefinition, table: FlinkDeclared) -> bool:
    everything = table.text("value.fields-include", "ALL") == "ALL"
    assert table.layouts is not None  # noqa: S101
    return everything or column.name not in table.layouts.key_columns


def times_of(target: FlinkDeclared, insert: FlinkInsert) -> Times:
    """One way to write times for key and value."""
    if target.layouts is None:
        return "RFC-3339"
    value, key = target.layouts.value, target.layouts.key
    if key is None or value.times == key.times:
        return value.times
    kinds = [*key.types, *(inner for one in key.types for inner in one.items)]
    if any(one.moment for one in kinds):
        message = "times in the key need the same format of times as in the value"
        raise Unreadable(insert.table_place, message)
    return value.times
