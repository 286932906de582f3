"""Tables whose rows are replaced and deleted: what a query can do with them, and what it cannot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dataflow_assets.languages.common.tokens import Unreadable
from dataflow_assets.languages.sql.engine.expressions import Expression, columns, lasting
from dataflow_assets.languages.sql.engine.metadata import METADATA
from dataflow_assets.languages.sql.engine.plan import Cell, FlinkOutput
from dataflow_assets.languages.sql.reader.options import KAFKA
from dataflow_assets.languages.sql.reader.relation import OTHER, Relation, column_at
from dataflow_assets.languages.sql.reader.syntax import FlinkInsert
from dataflow_assets.languages.sql.reader.tables import FlinkDeclared


def check_upserts(insert: FlinkInsert, target: FlinkDeclared, changing: str) -> None:
    """Raises Unreadable where the target cannot take updates and deletes, which `changing` has."""
    if target.connector == KAFKA or not target.table.key:
        message = (
            f"{changing} has updates and deletes, and {target.name} takes inserts only: give it a "
            "PRIMARY KEY" + (" and the connector upsert-kafka" if target.layouts else "")
        )
        raise Unreadable(insert.table_place, message)


def check_unnested(relation: Relation) -> None:
    """Without state nobody knows which items a row had before. Raises Unreadable."""
    if relation.unnested is not None and relation.changes:
        name = relation.table.name
        message = (
            f"UNNEST of {name}, whose rows are replaced and deleted: without state the rows of "
            "items that a row has lost would stay in the target. Write SELECT DISTINCT, or GROUP "
            "BY, with these columns as the PRIMARY KEY of the target: such a query keeps the items"
        )
        raise Unreadable(relation.unnested, message)


def check_changelog(
    insert: FlinkInsert,
    relation: Relation,
    target: FlinkDeclared,
    outputs: Sequence[FlinkOutput],
    cells: Sequence[Cell],
) -> None:
    """Without state a change can only be passed on: key by key. Raises Unreadable."""
    table = relation.table
    check_upserts(insert, target, table.name)
    keys = [one.expression for one in outputs if one.key]
    if not table.table.key:
        _check_retracted(insert, relation, keys)
        return
    places = set(map(column_at, keys))
    names = {cells[at].name for at in places - {OTHER} if at is not None}
    if OTHER in places or names != set(table.table.key):
        message = (
            f"the PRIMARY KEY of {target.name} must be the columns of that of {table.name} "
            f"({', '.join(table.table.key)}) as they are; constants may be added. For another key "
            "keep one row of each by ROW_NUMBER(), as "
            "docs/reference/sql.md#first-rows-of-each-key says"
        )
        raise Unreadable(insert.table_place, message)


def check_conditions(relation: Relation) -> None:
    """A change that WHERE leaves out deletes the row of its key. Raises Unreadable.

    Of METADATA of its envelope that would be the change of another table.
    """
    table = relation.table
    if not table.changes or not table.table.key:
        return
    envelope = {
        at
        for at, one in enumerate(table.stored_columns)
        if one.metadata and one.metadata not in METADATA
    }
    first = relation.stages[0] if relation.stages else relation
    cells = columns(first.where) & envelope if first.where is not None else frozenset()
    for at in sorted(cells):
        column = table.stored_columns[at]
        message = (
            f"WHERE asks for {column.name}, METADATA {column.metadata}: a change of another table "
            f"would delete the row of its key. Read one table from the topic: name it by "
            "canal-json.table.include or maxwell's filter, or let each table have a topic"
        )
        raise Unreadable(column.place, message)


def check_grouped_changes(insert: FlinkInsert, relation: Relation) -> None:
    """A row that goes must be what it was when it came. Raises Unreadable."""
    if relation.table.changes and not relation.table.table.key:
        inside = [one for unnest in relation.unnests for one in unnest.expressions]
        _check_retracted(insert, relation, [*inside, *relation.stages[0].expressions])


def _check_retracted(
    insert: FlinkInsert, relation: Relation, expressions: Iterable[Expression]
) -> None:
    """Raises Unreadable for what another message, or another time, says otherwise of a row."""
    table = relation.table
    metadata = {at for at, one in enumerate(table.stored_columns) if one.metadata is not None}
    for one in expressions:
        if not lasting(one) or columns(one) & metadata:
            message = (
                f"{table.name} has no PRIMARY KEY, so a row that goes is looked for by what is "
                "computed of it, and METADATA, or the time, has changed by then: declare the "
                "PRIMARY KEY"
            )
            raise Unreadable(insert.query.place, message)
