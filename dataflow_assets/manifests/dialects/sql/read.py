"""A `.sql` file -> one flow for each INSERT, or everything that is wrong with it."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as File
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dataflow_assets.contracts import Rejects, Source
from dataflow_assets.flow import Branch, Flow, Policies
from dataflow_assets.manifests.dialects.dataflow import Reading
from dataflow_assets.manifests.dialects.dataflow_rules import same
from dataflow_assets.manifests.dialects.documents import Path
from dataflow_assets.manifests.dialects.documents import Place as Lines
from dataflow_assets.manifests.dialects.key_tables import entry, names
from dataflow_assets.manifests.dialects.keys import meant, suggest
from dataflow_assets.manifests.dialects.sql import ends, views
from dataflow_assets.manifests.dialects.sql.durations import milliseconds
from dataflow_assets.manifests.dialects.sql.inserts import plan
from dataflow_assets.manifests.dialects.sql.like import merged
from dataflow_assets.manifests.dialects.sql.options import KAFKA, SETTINGS
from dataflow_assets.manifests.dialects.sql.read_statements import read_script
from dataflow_assets.manifests.dialects.sql.relations import Catalog, Refusals, Relation, related
from dataflow_assets.manifests.dialects.sql.several_inserts import Made, check_apart
from dataflow_assets.manifests.dialects.sql.statements import (
    StatementDocument,
    StatementNotes,
    lines,
)
from dataflow_assets.manifests.dialects.sql.syntax import (
    Insert,
    Option,
    Remark,
    Select,
    Set,
    Statement,
    Table,
    View,
)
from dataflow_assets.manifests.dialects.sql.tables import (
    Declared,
    declared,
    environment_of,
)
from dataflow_assets.manifests.dialects.sql.tokens import Place, Unreadable
from dataflow_assets.records.chain import Transformation
from dataflow_assets.records.step import Step
from dataflow_assets.sql.plan import Plan
from dataflow_assets.sql.query import SqlQuery
from dataflow_assets.sql.view import ViewPlan, ViewRows

_ENDS: Sequence[tuple[Path, int]] = (
    (("metadata", "name"), 1),
    (("spec", "source", "config"), 0),
    (("spec", "sink", "config"), 1),
)
_DEEP = "an expression of this file is nested too deeply: split it"
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "dataflow.onRejected": ("table", "fail", "skip"),
    "dataflow.suspended": ("true", "false"),
    "table.exec.sink.not-null-enforcer": ("ERROR", "DROP"),
    "table.exec.sink.type-length-enforcer": ("IGNORE", "TRIM_PAD"),
}


@dataclass
class _File(StatementNotes):
    """What is known while a file is read from its beginning to its end."""

    text: str
    settings: dict[str, str] = field(default_factory=dict)
    written: dict[str, Table] = field(default_factory=dict)
    tables: dict[str, Declared] = field(default_factory=dict)
    views: dict[str, tuple[View, Relation]] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    beside: Mapping[str, Sequence[tuple[str, Declared | None]]] = field(default_factory=dict)
    """By the name of a table the files of the folder that declare it; None: with findings there."""
    made: dict[str, list[Made]] = field(default_factory=dict)
    """By their targets the INSERTs that were read."""
    groups: dict[tuple[str, str, str], Place] = field(default_factory=dict)
    """By brokers, topic and consumer group the first INSERT that begins where the group is."""

    def catalog(self) -> Catalog:
        """Of two tables of a name the file's own is meant."""
        own = {*self.written, *self.views, *self.broken}
        others = {name: found for name, found in self.beside.items() if name not in own}
        usable = {name: found[0][1] for name, found in others.items() if len(found) == 1}
        tables = {name: one for name, one in usable.items() if one is not None}
        unusable = {
            name: _unusable(name, one) for name, one in others.items() if name not in tables
        }
        return Catalog(tables | self.tables, self.views, frozenset(self.broken), unusable)


def _unusable(name: str, found: Sequence[tuple[str, Declared | None]]) -> str:
    files = ", ".join(sorted(file for file, _ in found))
    if len(found) == 1:
        return f"{name} is declared in {files}, which has findings about it"
    said = f"several files of this folder declare {name}: {files}"
    return f"{said}; declare it in this one, or in one of them"


def tables_of(text: str, file: str) -> Mapping[str, Declared | None]:
    """The tables of a file, for the others of its folder; None: what has findings of its own."""
    state = _File(file, text)
    try:
        script = read_script(text)
        state.broken |= script.broken
        for one in script.statements:
            if isinstance(one, Table):
                _declare(one, state)
    except RecursionError:
        return {}
    return {name: state.tables.get(name) for name in (*state.tables, *state.broken)}


def read(
    text: str,
    file: str,
    beside: Mapping[str, Sequence[tuple[str, Declared | None]]] | None = None,
) -> list[Reading]:
    """A reading for each flow, and one of findings and notes.

    `beside`: by their names the tables of the other files of the folder, each with its file.
    """
    state = _File(file, text, beside=beside or {})
    inserts: list[Insert] = []
    flows: list[Reading] = []
    try:
        script = read_script(text)
        state.broken |= script.broken
        for place, message in script.problems:
            state.wrong("SQL", place, message)
        inserts = [one for one in script.statements if isinstance(one, Insert)]
        flows = list(_flows(script.statements, inserts, state))
    except RecursionError:
        state.wrong("SQL", Place(1, 1), _DEEP)
        flows = []
    if not inserts and not state.notes.findings:
        state.note("SQL", Place(1, 1), "no INSERT INTO in this file, and so no flow")
    return [state.reading(), *flows]


def _flows(
    statements: Sequence[Statement], inserts: Sequence[Insert], state: _File
) -> Iterator[Reading]:
    targets = Counter(one.table for insert in inserts for one in insert.parts)
    seen: dict[str, Place] = {}
    for one in statements:
        if isinstance(one, Set):
            _set(one.option, state)
        elif isinstance(one, Remark):
            state.note("SQL", one.place, one.message)
        elif isinstance(one, Table | View):
            _declare(one, state)
        else:
            before = len(state.notes.findings)
            alone = targets[one.table] == 1
            found = [each for part in one.parts for each in _flow(part, state, seen, alone=alone)]
            # Half of a UNION would be a table that lacks rows.
            yield from found if len(state.notes.findings) == before else ()


def _set(option: Option, state: _File) -> None:
    found = entry(option.key, SETTINGS)
    allowed = _CHOICES.get(option.key)
    what = f"SET {option.key}"
    if found is None:
        nearest = suggest(option.key, names(SETTINGS), 0.8)
        advice = f"; did you mean {nearest}?" if nearest else ""
        state.note(what, option.place, f"has no effect: it is not known here{advice}")
    elif found.verdict == "note":
        state.note(what, option.place, found.says)
    elif allowed is not None and option.value not in allowed:
        state.wrong(what, option.value_place, meant(option.value, allowed))
    elif wrong := _setting_problem(option):
        state.wrong(what, option.value_place, wrong)
    else:
        state.settings[option.key] = option.value


def _setting_problem(option: Option) -> str:
    if option.key == "table.local-time-zone":
        try:
            ZoneInfo(option.value)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            return "is not a time zone: write its name, like UTC or Europe/Berlin"
    if option.key in (views.IDLE, views.TTL) and milliseconds(option.value) is None:
        return "must be a duration, like 500ms, 1s or 5 min"
    if option.key == "dataflow.freshness":
        number = option.value
        if not re.fullmatch("[0-9]{1,4}", number) or not 1 <= int(number) <= 3600:
            return "must be a number of seconds, 1 to 3600"
    return ""


def _declare(one: Table | View, state: _File) -> None:
    known = one.name in state.written or one.name in state.views
    kind = "table" if isinstance(one, Table) else "view"
    if known and one.if_not_exists:
        return
    if known:
        state.wrong(f"{kind} {one.name}", one.place, "is declared twice in this file")
        return
    if isinstance(one, View):
        _view(one, state)
        return
    try:
        table = _with_like(one, state)
    except Unreadable as error:
        state.wrong(f"table {one.name}", error.place, error.message)
        state.broken.add(one.name)
        return
    state.written[one.name] = table
    found = declared(table, state.file, state.notes)
    if found is None:
        state.broken.add(one.name)
        return
    state.tables[one.name] = found
    try:
        found.scope(environment_of(state.settings))
    except Unreadable as error:
        state.wrong(f"table {one.name}", error.place, error.message)
        state.broken.add(one.name)
        del state.tables[one.name]


def _with_like(table: Table, state: _File) -> Table:
    if table.like is None:
        return table
    other = state.written.get(table.like.table)
    if other is None:
        return merged(table, state.catalog().table(table.like.table, table.like.place).table)
    return merged(table, other)


def _view(view: View, state: _File) -> None:
    rows = _related(f"view {view.name}", view.query, state)
    if rows is None:
        state.broken.add(view.name)
    else:
        state.views[view.name] = view, rows


def _related(what: str, query: Select, state: _File) -> Relation | None:
    try:
        return related(query, state.catalog(), environment_of(state.settings))
    except Unreadable as error:
        if not error.message.endswith("has findings of its own"):
            state.wrong(what, error.place, error.message)
    except Refusals as error:
        for place, message in error.found:
            state.wrong(what, place, message)
    return None


def _flow(
    insert: Insert, state: _File, seen: dict[str, Place], *, alone: bool
) -> Iterator[Reading]:
    what = f"INSERT INTO {insert.table}"
    before = len(state.notes.findings)
    relation = _related(what, insert.query, state)
    target = _target(what, insert, state)
    if relation is None or target is None:
        return
    try:
        if relation.stages:
            made: Plan | ViewPlan = views.view(insert, relation, target, state.settings)
        else:
            made = plan(insert, relation, target, state.settings, alone=alone)
        check_apart(insert, made, state.made.setdefault(target.name, []))
    except Unreadable as error:
        state.wrong(what, error.place, error.message)
        return
    name = f"{target.name}.{relation.table.name}"
    if name in seen:
        message = f"a second query of {relation.table.name} into it: line {seen[name].line} has one"
        advice = f"declare the table again, CREATE TABLE another LIKE {relation.table.name}"
        state.wrong(what, insert.query.place, f"{message}; a flow has the name {name}: {advice}")
        return
    seen[name] = insert.query.place
    _check_group(insert, relation.table, state)
    source = ends.source(relation.table, name, state.notes)
    sink = ends.sink(target, state.notes)
    if source is not None and sink is not None and same(source, sink):
        message = f"the flow reads what it writes: {sink.address().name} is also its source"
        state.wrong(what, insert.table_place, message)
    if source is None or sink is None or len(state.notes.findings) > before:
        return
    try:
        step, reads = _steps(insert, source, made, state)
    except Unreadable as error:
        state.wrong(what, error.place, error.message)
        return
    tables = (relation.table, target)
    document = _document(insert, tables, state, name)
    flow = Flow(
        namespace="default",
        name=name,
        source=reads,
        branches=(Branch(sink),),
        policies=_policies(state, target, made),
        transformations=(Transformation(step),),
        file=File(state.file),
        line=insert.place.line,
        hash=_hash(insert, tables, made),
        suspended=state.settings.get("dataflow.suspended") == "true",
        language="sql",
    )
    yield Reading(document, flow=flow)


def _steps(
    insert: Insert, messages: Source, made: Plan | ViewPlan, state: _File
) -> tuple[Step, Source]:
    """What the flow does with each message, and what it reads. Raises Unreadable."""
    if isinstance(made, Plan):
        return SqlQuery(plan=made, text=insert.text), messages
    step = ViewRows(view=made, text=insert.text)
    return step, views.source(insert, messages, made, state.settings)


def _target(what: str, insert: Insert, state: _File) -> Declared | None:
    try:
        return state.catalog().table(insert.table, insert.table_place)
    except Unreadable as error:
        if not error.message.endswith("has findings of its own"):
            state.wrong(what, error.place, error.message)
    return None


def _check_group(insert: Insert, table: Declared, state: _File) -> None:
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
    insert: Insert, tables: tuple[Declared, Declared], state: _File, name: str
) -> StatementDocument:
    places: dict[Path, Lines] = {(): lines(insert.place)}
    for path, at in _ENDS:
        place = insert.table_place if path == ("metadata", "name") else tables[at].table.place
        places[path] = lines(place)
    return StatementDocument(state.file, f"flow {name}", places)


def _policies(state: _File, target: Declared, made: Plan | ViewPlan) -> Policies:
    """Of a view the source itself counts how many records are rejected."""
    way = state.settings.get("dataflow.onRejected", "table")
    waits = f"{max(1, min(target.buffer.millis // 1000, 3600))}" if target.buffer else "10"
    counted = isinstance(made, ViewPlan)
    return Policies(
        max_rejected_percent=100.0 if counted else Policies.max_rejected_percent,
        freshness_seconds=float(state.settings.get("dataflow.freshness", waits)),
        rejects=Rejects(way),  # type: ignore[arg-type]
    )


def _hash(insert: Insert, tables: tuple[Declared, Declared], made: object) -> str:
    """Of what the flow does: spelling and comments do not count."""
    options = [sorted((key, one.value) for key, one in table.options.items()) for table in tables]
    return hashlib.sha256(repr((insert.table, options, made)).encode()).hexdigest()
