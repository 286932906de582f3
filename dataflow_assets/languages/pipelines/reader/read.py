"""A `.sql` file of pipelines -> one flow for each CREATE PIPELINE, or what is wrong with it.

What a file says is read by itself; where its tables live is known only beside other files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path as File

from dataflow_assets.contracts import Limit, Rejects
from dataflow_assets.errors import describe_unexpected
from dataflow_assets.flow import Branch, Flow, Policies
from dataflow_assets.languages.common.canonical import Form, Forms
from dataflow_assets.languages.common.keys import suggest
from dataflow_assets.languages.common.reading import Reading
from dataflow_assets.languages.common.statements import StatementDocument, lines
from dataflow_assets.languages.common.tokens import Place, Unreadable
from dataflow_assets.languages.pipelines.reader import syntax
from dataflow_assets.languages.pipelines.reader.declare import (
    Declarations,
    DeclaredTable,
    Pipeline,
    declarations,
)
from dataflow_assets.languages.pipelines.reader.read_statements import read_script
from dataflow_assets.languages.pipelines.reader.sink import COMPUTES, FOLDS, sink
from dataflow_assets.languages.pipelines.reader.source import Connected, connect
from dataflow_assets.languages.pipelines.reader.tables import (
    PipelineNames,
    batch_scope,
    computed_outputs,
    inserted_row,
    mapped_row,
    table_of,
)
from dataflow_assets.languages.pipelines.rows import expressions, rows, table, types
from dataflow_assets.languages.pipelines.rows.rows import PipelineRow, PipelineRows
from dataflow_assets.languages.pipelines.rows.table import PipelineTable
from dataflow_assets.languages.pipelines.targets import PipelineTarget, Targets
from dataflow_assets.records.chain import Transformation

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")
_DEEP = "an expression of this file is nested too deeply"
_FRESHNESS = 10.0
FORMS = Forms(
    Form(expressions.PipelineColumnReference, "column", "name is_json"),
    Form(expressions.PipelineConstant, "constant", "value"),
    Form(expressions.Extract, "extract", "form given path"),
    Form(expressions.FromBase64, "from_base64", "given"),
    Form(rows.Envelope, "envelope", "topic id_keys"),
    Form(rows.PipelineOutput, "output", "name type expression nullable"),
    Form(rows.PipelineRow, "row", "outputs computed route"),
    Form(table.PipelineColumn, "table_column", "name type nullable computed"),
    Form(table.Index, "index", "name columns"),
    Form(table.PipelineTable, "table", "columns indexes key"),
    Form(types.PipelineType, "type", "name length scale"),
)


@dataclass(frozen=True)
class PipelineFile:
    """The declarations of one file, before the place of their tables is known."""

    file: str
    statements: tuple[syntax.Statement, ...] = field(repr=False)
    problems: tuple[tuple[Place, str], ...] = ()
    broken: frozenset[str] = frozenset()
    """Names of what is created or changed and cannot be read."""
    unclear: tuple[Place, ...] = ()
    """Statements that cannot be read and might have changed what others mean."""


def read(text: str, file: str) -> PipelineFile:
    try:
        script = read_script(text)
    except RecursionError:
        return PipelineFile(file, (), ((Place(1, 1), _DEEP),))
    broken = frozenset(script.broken)
    statements, problems = tuple(script.statements), tuple(script.problems)
    return PipelineFile(file, statements, problems, broken, tuple(script.unclear))


def flows(file: PipelineFile, targets: Targets) -> list[Reading]:
    """A reading for each flow, and one of findings and notes."""
    state = declarations(file.statements, file.file, file.broken)
    for place, message in file.problems:
        state.wrong("SQL", place, message)
    state.unclear += file.unclear
    built = list(_flows(state, targets))
    if not state.pipelines and not state.notes.findings:
        state.note("SQL", Place(1, 1), "no CREATE PIPELINE in this file, and so no flow")
    return [state.reading(), *built]


def _flows(state: Declarations, targets: Targets) -> Iterator[Reading]:
    for pipeline in state.pipelines.values():
        if state.unclear:
            state.leave_out(_what(pipeline), pipeline.statement.place, min(state.unclear))
            continue
        before = len(state.notes.findings)
        try:
            flow = _flow(pipeline, state, targets)
        except Unreadable as error:
            state.wrong(_what(pipeline), error.place, error.message)
            continue
        except RecursionError:
            state.wrong(_what(pipeline), pipeline.statement.place, _DEEP)
            continue
        except Exception as error:  # noqa: BLE001 - whatever it is, the other pipelines go on
            reason = f"cannot be read: {describe_unexpected(error)}"
            state.wrong(_what(pipeline), pipeline.statement.place, reason)
            continue
        if flow is not None and len(state.notes.findings) == before:
            yield flow


def _what(pipeline: Pipeline) -> str:
    return f"pipeline {pipeline.statement.name.text}"


def _flow(pipeline: Pipeline, state: Declarations, targets: Targets) -> Reading | None:
    statement, what = pipeline.statement, _what(pipeline)
    if not _NAME.fullmatch(statement.name.text):
        message = "its name must have letters, digits, `_`, `-` and `.` only: a flow has it too"
        raise Unreadable(statement.name.place, message)
    source = connect(state.file, statement.name.place, pipeline.options, state.notes)
    target = targets.find(pipeline.target)
    if isinstance(target, str):
        raise Unreadable(statement.name.place, target)
    branches = list(_branches(pipeline, state, target, source))
    if source is None or any(branch is None for branch, _ in branches):
        return None
    if not pipeline.started:
        message = "is not started in this file: its flow is suspended until START PIPELINE"
        state.note(what, statement.name.place, message)
    rows = tuple(row for _, row in branches)
    policies = _policies(pipeline, state)
    steps = PipelineRows(envelope=source.envelope, rows=rows)
    flow = Flow(
        namespace="default",
        name=statement.name.text,
        source=source.source,
        branches=tuple(branch for branch, _ in branches if branch),
        policies=policies,
        transformations=(Transformation(steps),),
        file=File(state.file),
        line=statement.place.line,
        hash=_hash(source, rows, branches, policies),
        suspended=not pipeline.started,
        language="pipelines",
    )
    return Reading(_document(pipeline, state.file), flow=flow)


def _branches(
    pipeline: Pipeline, state: Declarations, target: PipelineTarget, source: Connected | None
) -> Iterator[tuple[Branch | None, PipelineRow]]:
    names = PipelineNames(target.system in FOLDS)
    fields = {"pipeline": pipeline.statement.name.text}
    if source is not None:
        fields["config_json"] = source.config_json
    for declared, row in _rows(pipeline, state, names):
        table = table_of(declared, names)
        route = row.route
        computed = () if target.system in COMPUTES else tuple(computed_outputs(table))
        branch_sink = sink(
            target, names.of(declared.name), table, fields if route is None else {}, state.notes
        )
        for index in declared.indexes if target.system == "iceberg" else ():
            message = "has no effect: a table of Iceberg has no indexes"
            state.note(f"index {index.name.text}", index.place, message)
        branch = Branch(branch_sink, routes=(route,)) if branch_sink is not None else None
        yield branch, PipelineRow(row.outputs, computed, route)


def _rows(
    pipeline: Pipeline, state: Declarations, names: PipelineNames
) -> Iterator[tuple[DeclaredTable, PipelineRow]]:
    statement = pipeline.statement
    if statement.procedure is not None:
        yield from _of_procedure(statement, statement.procedure, state, names)
        return
    name = statement.table or statement.name
    if statement.table is None and not statement.inferred:
        message = (
            "says no target: write INTO TABLE name or INTO PROCEDURE name, or CREATE INFERRED "
            "PIPELINE"
        )
        raise Unreadable(statement.name.place, message)
    declared = _table(name, state)
    table = table_of(declared, names)
    yield declared, mapped_row(statement.mapped, declared, table, name.place)


def _of_procedure(
    statement: syntax.CreatePipeline,
    name: syntax.PipelineName,
    state: Declarations,
    names: PipelineNames,
) -> Iterator[tuple[DeclaredTable, PipelineRow]]:
    procedure = state.procedures.get(name.text.lower())
    if procedure is None:
        _check_sound(name, state)
        advice = suggest(name.text, [one.name.text for one in state.procedures.values()])
        raise Unreadable(name.place, f"no procedure {name.text} above; {advice}")
    batch = batch_scope(procedure.columns, statement.mapped)
    seen: dict[str, syntax.PipelineInsert] = {}
    for at, insert in enumerate(procedure.inserts):
        key = insert.table.text.lower()
        first = seen.setdefault(key, insert)
        if first is not insert:
            message = f"a second INSERT into {insert.table.text}: line {first.place.line} has one"
            raise Unreadable(insert.place, f"{message}, and each needs a table of its own")
        declared = _table(insert.table, state)
        row = inserted_row(insert, batch, declared, table_of(declared, names))
        yield declared, PipelineRow(row.outputs, row.computed, key if at else None)


def _table(name: syntax.PipelineName, state: Declarations) -> DeclaredTable:
    table = state.tables.get(name.text.lower())
    if table is None:
        _check_sound(name, state)
        advice = suggest(name.text, [one.name for one in state.tables.values()])
        raise Unreadable(name.place, f"no table {name.text} in this file; {advice}")
    return table


def _check_sound(name: syntax.PipelineName, state: Declarations) -> None:
    """Raises Unreadable for what is there, and has a mistake in it."""
    if name.text.lower() in state.broken:
        raise Unreadable(name.place, f"{name.text} has findings of its own: correct these first")


def _policies(pipeline: Pipeline, state: Declarations) -> Policies:
    """STOP_ON_ERROR is ON where nothing is said, as it is with SingleStore."""
    stops = pipeline.options.stop_on_error
    keeps = pipeline.statement.skips_errors if stops is None else not stops
    most_rows = pipeline.options.most_rows or state.most_rows
    limit = Limit(records=most_rows) if most_rows else Limit()
    return Policies(
        limit=limit,
        freshness_seconds=_FRESHNESS,
        max_rejected_percent=100.0 if keeps else 10.0,
        rejects=Rejects("table" if keeps else "fail"),
    )


def _document(pipeline: Pipeline, file: str) -> StatementDocument:
    statement = pipeline.statement
    return StatementDocument(file, f"flow {statement.name.text}", {(): lines(statement.place)})


def _hash(
    source: Connected,
    rows: Sequence[PipelineRow],
    branches: Sequence[tuple[Branch | None, PipelineRow]],
    policies: Policies,
) -> str:
    defined = (getattr(one.sink, "definition", None) for one, _ in branches if one)
    tables: list[PipelineTable] = [*defined]  # type: ignore[list-item]
    rules = (policies.limit.records, policies.max_rejected_percent, policies.rejects.way)
    parts = (
        source.config_json,
        source.envelope,
        source.source.traits.poll_seconds,
        rules,
        rows,
        tables,
    )
    return FORMS.digest(parts)
