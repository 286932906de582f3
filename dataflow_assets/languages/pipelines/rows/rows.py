"""The step of a pipeline: what its source delivers -> the columns of its table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import InstanceOf
from typing_extensions import override

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.languages.pipelines.rows.expressions import (
    Evaluate,
    Expression,
    columns,
    convert,
)
from dataflow_assets.languages.pipelines.rows.types import PipelineType
from dataflow_assets.records.record import Record
from dataflow_assets.records.step import Apply, Context, Example, Origins, Step


@dataclass(frozen=True)
class PipelineOutput:
    """A column of the target, and what it is made from."""

    name: str
    type: PipelineType
    expression: Expression
    nullable: bool = True


@dataclass(frozen=True)
class Envelope:
    """Builds `topic`, `id` and `record` from a message of a source.

    The message itself is the record; its id consists of some of its keys.
    """

    topic: str
    id_keys: tuple[str, ...]


@dataclass(frozen=True)
class PipelineRow:
    """A row of one target for each record; `route`: which target, None for the first one."""

    outputs: tuple[PipelineOutput, ...]
    """Of what is delivered: `topic`, `id` and `record`."""
    computed: tuple[PipelineOutput, ...] = ()
    """Of the other columns of the row, where the target does not compute them itself."""
    route: str | None = None


class PipelineRows(Step):
    """Columns of a pipeline's table. Made by the manifest language `pipelines` alone."""

    type: ClassVar[str] = "pipeline"
    examples: ClassVar[tuple[Example, ...]] = ()
    envelope: InstanceOf[Envelope] | None = None
    """None: messages are objects with `topic`, `id` and `record` already."""
    rows: tuple[InstanceOf[PipelineRow], ...]

    @override
    def compile(self, context: Context) -> Apply:
        makers = [_Maker(row) for row in self.rows]

        def apply(record: Record) -> list[Record]:
            delivered = _deliver(self.envelope, record.body)
            return [Record(one(delivered), record.metadata, one.route) for one in makers]

        return apply

    @override
    def origins(self, column: str) -> Origins:
        for one in (one for row in self.rows for one in (*row.outputs, *row.computed)):
            if one.name == column:
                return frozenset(columns(one.expression))
        return None


class _Maker:
    """Compiled once for each task."""

    def __init__(self, row: PipelineRow) -> None:
        self.route = row.route
        self._outputs = [(one, convert(one.expression, one.type)) for one in row.outputs]
        self._computed = [(one, convert(one.expression, one.type)) for one in row.computed]

    def __call__(self, delivered: Mapping[str, Any]) -> dict[str, Any]:
        body = {one.name: _value(one, make, delivered) for one, make in self._outputs}
        for one, make in self._computed:
            body[one.name] = _derive(make, body)
        return body


def _deliver(envelope: Envelope | None, body: Any) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise RejectedRecord("step", "the source has delivered no object")
    if envelope is None:
        return body
    key = {name: body.get(name) for name in envelope.id_keys}
    return {"topic": envelope.topic, "id": key, "record": body}


def _value(output: PipelineOutput, make: Evaluate, row: Mapping[str, Any]) -> Any:
    try:
        result = make(row)
    except ValueError as error:
        raise RejectedRecord("step", f"column {output.name}: {error}") from None
    if result is None and not output.nullable:
        message = (
            f"column {output.name} is NOT NULL, and the record has no value for it: declare the "
            "column without NOT NULL, or keep such records apart with SKIP ALL ERRORS"
        )
        raise RejectedRecord("step", message)
    return result


def _derive(make: Evaluate, row: Mapping[str, Any]) -> Any:
    """Null where the value does not fit, as in targets that compute it themselves."""
    try:
        return make(row)
    except ValueError:
        return None
