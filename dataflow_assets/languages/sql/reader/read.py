"""A `.sql` file -> one flow for each INSERT, or everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path as File

from dataflow_assets.connectors.kafka.source.source import KafkaSource
from dataflow_assets.contracts import Rejects, Source
from dataflow_assets.errors import describe_unexpected
from dataflow_assets.flow import Branch, Flow, Policies, loops
from dataflow_assets.languages.common.documents import NodePlace, Path
from dataflow_assets.languages.common.reading import Reading
from dataflow_assets.languages.common.statements import StatementDocument, lines
from dataflow_assets.languages.common.tokens import Place, Unreadable
from dataflow_assets.languages.sql.engine.plan import FlinkPlan
from dataflow_assets.languages.sql.engine.query import SqlQuery, ViewRows
from dataflow_assets.languages.sql.engine.view import ViewPlan
from dataflow_assets.languages.sql.reader import ends, settings, views
from dataflow_assets.languages.sql.reader.file_state import FileState, declare, naming, query_of
from dataflow_assets.languages.sql.reader.inserts import plan
from dataflow_assets.languages.sql.reader.options import KAFKA
from dataflow_assets.languages.sql.reader.read_statements import read_script
from dataflow_assets.languages.sql.reader.relation import Relation
from dataflow_assets.languages.sql.reader.several_inserts import check_apart
from dataflow_assets.languages.sql.reader.syntax import (
    FlinkCreateTable,
    FlinkInsert,
    Remark,
    Set,
    Statement,
    View,
)
from dataflow_assets.languages.sql.reader.tables import FlinkDeclared
from dataflow_assets.languages.sql.state.digests import PLANS
from dataflow_assets.records.chain import Transformation
from dataflow_assets.records.step import Step

_SOURCE: Path = ("spec", "source", "config")
_DEEP = "an expression of this file is nested too deeply: split it"


def tables_of(text: str, file: str) -> Mapping[str, FlinkDeclared | None]:
    """The tables of a file, for the others of its folder; None: what has findings of its own."""
    state = FileState(file, text)
    try:
        script = read_script(text)
        state.broken |= script.broken
        for one in script.statements:
            if isinstance(one, FlinkCreateTable):
                declare(one, state)
    except Exception:  # noqa: BLE001 - a finding of that file, where it is read by itself
        return {}
    return {
        name: None if name in state.broken else state.tables.get(name)
        for name in (*state.tables, *state.broken)
    }


def read(
    text: str,
    file: str,
    beside: Mapping[str, Sequence[tuple[str, FlinkDeclared | None]]] | None = None,
) -> list[Reading]:
    """A reading for each flow, and one of findings and notes.

    `beside`: by their names the tables of the other files of the folder, each with its file.
    """
    state = FileState(file, text, beside=beside or {})
    inserts: list[FlinkInsert] = []
    flows: list[Reading] = []
    try:
        script = read_script(text)
        state.broken |= script.broken
        state.unclear += script.unclear
        for place, message in script.problems:
            state.wrong("SQL", place, message)
        inserts = [one for one in script.statements if isinstance(one, FlinkInsert)]
        flows = list(_flows(script.statements, state))
    except RecursionError:
        state.wrong("SQL", Place(1, 1), _DEEP)
        flows = []
    if not inserts and not state.notes.findings:
        state.note("SQL", Place(1, 1), "no INSERT INTO in this file, and so no flow")
    return [state.reading(), *flows]


def _flows(statements: Sequence[Statement], state: FileState) -> Iterator[Reading]:
    for one in statements:
        try:
            yield from _read_statement(one, state)
        except RecursionError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the other statements go on
            place = one.option.place if isinstance(one, Set) else one.place
            state.wrong("SQL", place, f"cannot be read: {describe_unexpected(error)}")
            state.broken |= {one.name} if isinstance(one, FlinkCreateTable | View) else set()


def _read_statement(one: Statement, state: FileState) -> list[Reading]:
    if isinstance(one, Set):
        settings.apply(one.option, state, state.settings)
    elif isinstance(one, Remark):
        state.note("SQL", one.place, one.message)
    elif isinstance(one, FlinkCreateTable | View):
        declare(one, state)
    else:
        before = len(state.notes.findings)
        with naming(one.named, state):
            flows = [flow for part in one.parts for flow in _flows_of(part, state)]
        # Half of a UNION would be a table that lacks rows.
        if len(state.notes.findings) > before:
            return []
        if cause := next((place for place in state.unclear if place < one.place), None):
            state.leave_out(f"INSERT INTO {one.table}", one.place, cause)
            return []
        return flows
    return []


def _flows_of(insert: FlinkInsert, state: FileState) -> Iterator[Reading]:
    """A flow, or with UNION ALL one for each table, unless the query takes them together."""
    what = f"INSERT INTO {insert.table}"
    relations = query_of(what, insert.query, state)
    target = _target(what, insert, state)
    if target is None:
        return
    for relation in relations:
        yield from _flow_of(insert, relation, target, state)


def _flow_of(
    insert: FlinkInsert, relation: Relation, target: FlinkDeclared, state: FileState
) -> Iterator[Reading]:
    what = f"INSERT INTO {insert.table}"
    before = len(state.notes.findings)
    try:
        if relation.stages:
            flow_plan: FlinkPlan | ViewPlan = views.view(insert, relation, target, state.settings)
        else:
            flow_plan = plan(insert, relation, target, state.settings)
        check_apart(insert, flow_plan, state.made.setdefault(target.name, []))
    except Unreadable as error:
        state.wrong(what, error.place, error.message)
        return
    name = f"{target.name}.{relation.table.name}"
    if name in state.flows:
        line = state.flows[name].line
        message = f"a second query of {relation.table.name} into it: line {line} has one"
        advice = f"declare the table again, CREATE TABLE another LIKE {relation.table.name}"
        state.wrong(what, insert.query.place, f"{message}; a flow has the name {name}: {advice}")
        return
    state.flows[name] = insert.query.place
    for table in relation.tables:
        _check_group(insert, table, state)
    kafka_sources = [ends.source(table, name, state.notes) for table in relation.tables]
    sources = [one for one in kafka_sources if one is not None]
    sink = ends.sink(target, state.notes)
    if sink is not None and any(loops(one, sink, one.address(), sink.address()) for one in sources):
        message = f"the flow reads what it writes: {sink.address().name} is also its source"
        state.wrong(what, insert.table_place, message)
    if sink is None or len(sources) < len(kafka_sources) or len(state.notes.findings) > before:
        return
    try:
        step, reads = _steps(insert, sources, flow_plan, state)
    except Unreadable as error:
        state.wrong(what, error.place, error.message)
        return
    document = _document(insert, relation.tables, target, state, name)
    flow = Flow(
        namespace="default",
        name=name,
        source=reads,
        branches=(Branch(sink),),
        policies=_policies(state, target, flow_plan),
        transformations=(Transformation(step),),
        file=File(state.file),
        line=insert.place.line,
        hash=_hash(insert, (*relation.tables, target), flow_plan, state.settings),
        suspended=state.settings.get("dataflow.suspended") == "true",
        language="sql",
    )
    yield Reading(document, flow=flow)


def _steps(
    insert: FlinkInsert,
    messages: Sequence[KafkaSource],
    flow_plan: FlinkPlan | ViewPlan,
    state: FileState,
) -> tuple[Step, Source]:
    if isinstance(flow_plan, FlinkPlan):
        return SqlQuery(plan=flow_plan, text=insert.text), messages[0]
    step = ViewRows(view=flow_plan, text=insert.text)
    return step, views.source(insert, messages, flow_plan, state.settings)


def _target(what: str, insert: FlinkInsert, state: FileState) -> FlinkDeclared | None:
    try:
        return state.catalog().table(insert.table, insert.table_place)
    except Unreadable as error:
        if not error.message.endswith("has findings of its own"):
            state.wrong(what, error.place, error.message)
    return None


def _check_group(insert: FlinkInsert, table: FlinkDeclared, state: FileState) -> None:
    """A second flow would begin where the first one has got to, and lack all that was before."""
    group = table.text("properties.group.id")
    mode = table.text("scan.startup.mode", "group-offsets")
    if table.connector != KAFKA or mode != "group-offsets" or not group:
        return
    read = (table.text("properties.bootstrap.servers"), table.text("topic"), group)
    first = state.groups.setdefault(read, insert.place)
    if first != insert.place:
        message = (
            f"the INSERT in line {first.line} reads this topic with the same properties.group.id: "
            "a new flow would begin where that one has got to; set scan.startup.mode of "
            f"{table.name} to earliest-offset, or leave the group out"
        )
        state.wrong(f"INSERT INTO {insert.table}", insert.place, message)


def _document(
    insert: FlinkInsert,
    read: Sequence[FlinkDeclared],
    target: FlinkDeclared,
    state: FileState,
    name: str,
) -> StatementDocument:
    first, *others = (lines(table.table.place) for table in read)
    places: dict[Path, NodePlace] = {
        (): lines(insert.place),
        ("metadata", "name"): lines(insert.table_place),
        _SOURCE: first,
        ("spec", "sink", "config"): lines(target.table.place),
    }
    places |= {(*_SOURCE, "others", at): place for at, place in enumerate(others)}
    return StatementDocument(state.file, f"flow {name}", places)


def _policies(state: FileState, target: FlinkDeclared, flow_plan: FlinkPlan | ViewPlan) -> Policies:
    way = state.settings.get("dataflow.onRejected", "table")
    waits = f"{max(1, min(target.buffer.millis // 1000, 3600))}" if target.buffer else "10"
    counted = isinstance(flow_plan, ViewPlan)
    return Policies(
        max_rejected_percent=100.0 if counted else Policies.max_rejected_percent,
        freshness_seconds=float(state.settings.get("dataflow.freshness", waits)),
        rejects=Rejects(way),  # type: ignore[arg-type]
    )


def _hash(
    insert: FlinkInsert, tables: Sequence[FlinkDeclared], made: object, settings: Mapping[str, str]
) -> str:
    options = [sorted((key, one.value) for key, one in table.options.items()) for table in tables]
    accepted = [
        (key, settings[key]) for key in (views.ACCEPTED, views.EQUAL_KEYS) if key in settings
    ]
    what = (insert.table, options, made, *accepted)  # without them as it was before there were any
    return PLANS.digest(what)
