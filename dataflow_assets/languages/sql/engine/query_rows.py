"""Runs a query on each message, inside a task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.languages.sql.engine.bytes.layout import Times
from dataflow_assets.languages.sql.engine.bytes.write import Write, writer
from dataflow_assets.languages.sql.engine.expressions import Expression, program
from dataflow_assets.languages.sql.engine.function import (
    NO_VALUE,
    Environment,
    Evaluate,
    Row,
    holds,
)
from dataflow_assets.languages.sql.engine.input import Input, Source
from dataflow_assets.languages.sql.engine.metadata import writer as metadata_writer
from dataflow_assets.languages.sql.engine.plan import FlinkOutput, FlinkPlan
from dataflow_assets.languages.sql.engine.unnest import FlinkUnnested
from dataflow_assets.records.record import Record


class QueryRows:
    """A record in, the row of the target out; compiled once for each task."""

    def __init__(self, plan: FlinkPlan, environment: Environment) -> None:
        self._plan = plan
        source = Source(plan.value, plan.key, plan.cells, plan.changelog)
        self._input = Input(source, environment.local)
        self._unnested = FlinkUnnested(plan.unnests, environment) if plan.unnests else None
        compiled = program(plan.shared, environment)
        self._where = compiled(plan.where) if plan.where is not None else None
        self._key_where = compiled(plan.key_where) if plan.key_where is not None else None
        self._outputs = Outputs(plan.outputs, compiled, plan.times, drops=plan.drops_nulls)
        keys = [one for one in plan.outputs if one.key]
        self._keys = Outputs(keys, compiled, plan.times, drops=plan.drops_nulls)

    def __call__(self, record: Record) -> Record | list[Record] | None:
        """The row, or the delete of one; None where nothing is to be written.

        With UNNEST, and of an array of records, its rows. Raises RejectedRecord, with a sentence
        that names a column and no value.
        """
        taken = self._input(record)
        if len(taken) == 1 and (self._unnested is None or taken[0][1]):
            return self._change(record, *taken[0])
        rows: Iterable[tuple[Row, bool]] = taken
        if self._unnested is not None:
            rows = ((one, False) for row, _ in taken for one in self._unnested(row))
        changes = (self._change(record, *one) for one in rows)
        return self._settle([one for one in changes if one is not None]) if taken else None

    def _change(self, record: Record, row: Row, gone: bool) -> Record | None:
        return self._delete(record, row) if gone else self._of(record, row)

    def _settle(self, records: list[Record]) -> list[Record]:
        """Without deletes of rows whose key the next one has again."""
        pairs = zip(records, [*records[1:], None], strict=False)
        return [one for one, other in pairs if other is None or not self._replaces(other, one)]

    def _replaces(self, record: Record, other: Record) -> bool:
        deletes = other.metadata.get("operation") == "delete"
        return deletes and all(record.body[name] == key for name, key in other.body.items())

    def _of(self, record: Record, row: Row) -> Record | None:
        if self._where is not None and not holds(self._where, row, "WHERE"):
            return self._delete(record, row) if self._plan.changelog else None
        body = self._outputs(row)
        return None if body is None else Record(body, record.metadata, record.route)

    def _delete(self, record: Record, row: Row) -> Record | None:
        """Unless nothing was ever written for the key, whatever else its rows had in them."""
        if self._key_where is not None and not _may_hold(self._key_where, row):
            return None
        body = self._keys(row)
        if body is None:
            return None
        return Record(body, {**record.metadata, "operation": "delete"}, record.route)


def _may_hold(where: Evaluate, row: Row) -> bool:
    """A delete passes where that cannot be said."""
    try:
        return where(row) is True
    except NO_VALUE:
        return True


class Outputs:
    """Columns of the target, by their names."""

    def __init__(
        self,
        outputs: Sequence[FlinkOutput],
        compiled: Callable[[Expression], Evaluate],
        times: Times,
        *,
        drops: bool,
    ) -> None:
        """`drops`: a row without a value that it must have is left out, not refused."""
        self._drops = drops
        self._columns = [
            (one.name, compiled(one.expression), _writer(one, times), one) for one in outputs
        ]

    def __call__(self, row: Row) -> dict[str, Any] | None:
        """Returns None where the row is to be left out. Raises RejectedRecord."""
        body: dict[str, Any] = {}
        name = ""
        try:
            for name, evaluate, write, output in self._columns:
                value = evaluate(row)
                if value is None:
                    if not output.nullable:
                        self._refuse_null(output)
                        return None
                elif write is not None:
                    value = write(value)
                body[name] = value
        except NO_VALUE as error:
            raise RejectedRecord("step", f"{name}: {error}") from None
        return body

    def _refuse_null(self, output: FlinkOutput) -> None:
        if not self._drops:
            raise RejectedRecord(
                "step",
                f"Column '{output.name}' is NOT NULL, and the query has no value for it; with "
                "table.exec.sink.not-null-enforcer = DROP such rows are left out",
            )


def _writer(output: FlinkOutput, times: Times) -> Write | None:
    if output.metadata:
        return metadata_writer(output.metadata)
    return writer(output.expression.type, times)
