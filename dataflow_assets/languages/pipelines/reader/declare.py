"""The statements of a file, one after the other -> the pipelines that they leave behind."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dataflow_assets.languages.common.keys import suggest
from dataflow_assets.languages.common.statements import StatementNotes
from dataflow_assets.languages.common.tokens import Place
from dataflow_assets.languages.pipelines.reader import syntax
from dataflow_assets.languages.pipelines.rows.table import STATIC

_EXPERIMENT = "experimental_features_config"
_ROWS = "pipelines_extractor_batch_size"
_NO_VARIABLE = "has no effect: it is a variable of SingleStore's servers"
_SET_AGAIN = "replaces the value above: the last one holds for all pipelines of the file"
_NOT_NEEDED = "has no effect: nothing has to be enabled here"


@dataclass
class DeclaredTable:
    """A table of the file, with what later statements add to it."""

    name: str
    place: Place
    columns: list[syntax.PipelineColumnDefinition]
    indexes: list[syntax.CreateIndex] = field(default_factory=list)
    key: tuple[syntax.PipelineName, ...] = ()


@dataclass
class Pipeline:
    """A pipeline as the whole file declares it."""

    statement: syntax.CreatePipeline
    options: syntax.PipelineOptions
    target: str | None
    """Of USE above it."""
    started: bool = False


@dataclass
class Declarations(StatementNotes):
    """Everything that a file declares."""

    tables: dict[str, DeclaredTable] = field(default_factory=dict)
    procedures: dict[str, syntax.CreateProcedure] = field(default_factory=dict)
    pipelines: dict[str, Pipeline] = field(default_factory=dict)
    target: str | None = None
    most_rows: int | None = None
    """Of the last SET GLOBAL: it holds for all pipelines of the file, wherever it stands."""
    broken: set[str] = field(default_factory=set)
    """Names of what has a mistake in it, in lower case."""


def declarations(
    statements: Sequence[syntax.Statement], file: str, broken: Collection[str] = ()
) -> Declarations:
    """Returns what the statements leave behind, with what is wrong and noted.

    `broken`: names of what cannot be read where the file creates or changes it; statements about
    them are left out.
    """
    declared = Declarations(file, broken=set(broken))
    for one in statements:
        before = len(declared.notes.findings)
        _HANDLERS[type(one)](one, declared)
        if len(declared.notes.findings) > before and not isinstance(one, syntax.CreateIndex):
            _doubt(one, declared)
    for name in declared.broken:
        for known in (declared.tables, declared.procedures, declared.pipelines):
            known.pop(name, None)
    return declared


def _doubt(one: syntax.Statement, declared: Declarations) -> None:
    """A statement with a mistake: what it is about is not used, and if that is unknown, nothing."""
    name = one.table if isinstance(one, syntax.AddColumn) else getattr(one, "name", None)
    names = {*declared.tables, *declared.pipelines}
    if isinstance(name, syntax.PipelineName) and name.text.lower() in names:
        declared.broken.add(name.text.lower())
    elif not isinstance(one, syntax.CreatePipeline | syntax.SetGlobal):
        declared.unclear.append(one.place)


def _note(one: syntax.Noted, declared: Declarations) -> None:
    declared.note(one.what, one.place, one.message)


def _use(one: syntax.Use, declared: Declarations) -> None:
    declared.target = one.name


def _set(one: syntax.SetGlobal, declared: Declarations) -> None:
    what = f"SET {one.key}"
    if one.key == _EXPERIMENT:
        declared.note(what, one.place, _NOT_NEEDED)
    elif one.key != _ROWS:
        declared.note(what, one.place, _NO_VARIABLE)
    elif not one.value.isdecimal() or not 0 < int(one.value) < 10**9:
        declared.wrong(what, one.place, "must be a number of records")
    else:
        if declared.most_rows is not None:
            declared.note(what, one.place, _SET_AGAIN)
        declared.most_rows = int(one.value)


def _table(one: syntax.CreateTable, declared: Declarations) -> None:
    key = one.name.text.lower()
    if key in declared.tables and not one.if_not_exists:
        line = declared.tables[key].place.line
        declared.wrong(f"table {one.name.text}", one.place, f"is declared in line {line} already")
    elif key not in declared.tables:
        table = DeclaredTable(one.name.text, one.place, list(one.columns), key=one.key)
        declared.tables[key] = table
        _check_columns(table, declared)
        plain = {one.name.text.lower(): one for one in table.columns if one.computed is None}
        for name in table.key:
            if name.text.lower() not in plain:
                advice = suggest(name.text, [one.name.text for one in plain.values()])
                message = f"PRIMARY KEY: no column {name.text} that rows bring with them; {advice}"
                declared.wrong(f"table {table.name}", name.place, message)


def _check_columns(table: DeclaredTable, declared: Declarations) -> None:
    names = [one.name.text.lower() for one in table.columns]
    for at, column in enumerate(table.columns):
        if names[at] in names[:at]:
            what = f"table {table.name}"
            declared.wrong(what, column.name.place, f"the column {column.name.text} is a duplicate")


def _add_column(one: syntax.AddColumn, declared: Declarations) -> None:
    table = _known_table(one.table, declared)
    if table is None:
        return
    table.columns.append(one.column)
    _check_columns(table, declared)
    if not one.column.nullable:
        message = f"{one.column.name.text} must be nullable: rows that are stored lack it"
        declared.wrong(f"table {table.name}", one.column.name.place, message)


def _index(one: syntax.CreateIndex, declared: Declarations) -> None:
    table = _known_table(one.table, declared)
    if table is None:
        return
    table.indexes.append(one)
    names = {column.name.text.lower(): column.name.text for column in table.columns}
    for name in one.columns:
        if name.text.lower() not in names:
            message = f"no column {name.text} in {table.name}; {suggest(name.text, names.values())}"
            declared.wrong(f"index {one.name.text}", name.place, message)


def _known_table(name: syntax.PipelineName, declared: Declarations) -> DeclaredTable | None:
    table = declared.tables.get(name.text.lower())
    if table is None and name.text.lower() not in declared.broken:
        declared.wrong(f"table {name.text}", name.place, _no_table(name.text, declared))
    return table


def _no_table(name: str, declared: Declarations) -> str:
    if name.lower() in declared.pipelines:
        return "this pipeline has no table of its own, as CREATE INFERRED PIPELINE has"
    return f"no table {name} above; {suggest(name, [one.name for one in declared.tables.values()])}"


def _procedure(one: syntax.CreateProcedure, declared: Declarations) -> None:
    declared.procedures[one.name.text.lower()] = one


def _pipeline(one: syntax.CreatePipeline, declared: Declarations) -> None:
    key, what = one.name.text.lower(), f"pipeline {one.name.text}"
    earlier = declared.pipelines.get(key)
    if earlier is not None and one.if_not_exists:
        return
    if earlier is not None and not one.replaces:
        line = earlier.statement.place.line
        declared.wrong(what, one.name.place, f"is created in line {line} already")
        return
    if one.inferred and (one.procedure or one.table):
        declared.wrong(
            what, one.name.place, "an inferred pipeline has a table of its own: leave INTO"
        )
        return
    if one.inferred:
        _infer(one, declared)
    declared.pipelines[key] = Pipeline(one, one.options, declared.target)


def _infer(one: syntax.CreatePipeline, declared: Declarations) -> None:
    """Its table, unless the file has one of this name."""
    columns = [
        syntax.PipelineColumnDefinition(
            syntax.PipelineName(one.name.place, column.name), column.type, nullable=False
        )
        for column in STATIC
    ]
    table = DeclaredTable(one.name.text, one.name.place, columns)
    declared.tables.setdefault(one.name.text.lower(), table)


def _alter(one: syntax.AlterPipeline, declared: Declarations) -> None:
    pipeline = _find_pipeline(one.name, declared)
    if pipeline is None:
        return
    options = {
        name: getattr(one.options, name) for name in syntax.PipelineOptions.__dataclass_fields__
    }
    changed = {name: value for name, value in options.items() if value is not None}
    pipeline.options = replace(pipeline.options, **changed)


def _find_pipeline(name: syntax.PipelineName, declared: Declarations) -> Pipeline | None:
    pipeline = declared.pipelines.get(name.text.lower())
    if pipeline is None and name.text.lower() not in declared.broken:
        advice = suggest(
            name.text, [one.statement.name.text for one in declared.pipelines.values()]
        )
        what = f"pipeline {name.text}"
        declared.wrong(what, name.place, f"no pipeline {name.text} above; {advice}")
    return pipeline


def _switch(one: syntax.Switch, declared: Declarations) -> None:
    if one.name is None:
        for pipeline in declared.pipelines.values():
            pipeline.started = one.on
        return
    target = _find_pipeline(one.name, declared)
    if target is None:
        return
    if one.on and target.started and not one.lenient:
        what = f"pipeline {one.name.text}"
        declared.wrong(what, one.place, "is started already: write START PIPELINE IF NOT RUNNING")
    target.started = one.on


def _drop(one: syntax.DropPipeline, declared: Declarations) -> None:
    name, what = one.name.text, f"pipeline {one.name.text}"
    if declared.pipelines.pop(name.lower(), None) is not None:
        message = (
            "is dropped again: this file makes no flow of it, unless it creates the pipeline again "
            "below; such a flow goes on behind what it has read, until `dataflow reset`"
        )
        declared.note(what, one.place, message)
    elif one.if_exists:
        message = "nothing to drop above; what a flow has read stays until `dataflow reset`"
        declared.note(what, one.place, message)
    else:
        _find_pipeline(one.name, declared)


_HANDLERS: Mapping[type, Callable[[Any, Declarations], None]] = {
    syntax.Noted: _note,
    syntax.Use: _use,
    syntax.SetGlobal: _set,
    syntax.CreateTable: _table,
    syntax.AddColumn: _add_column,
    syntax.CreateIndex: _index,
    syntax.CreateProcedure: _procedure,
    syntax.CreatePipeline: _pipeline,
    syntax.AlterPipeline: _alter,
    syntax.Switch: _switch,
    syntax.DropPipeline: _drop,
}
