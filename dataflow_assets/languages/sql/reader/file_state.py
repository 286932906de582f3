"""Declares the names of a file of SQL while it is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field

from dataflow_assets.languages.common.statements import StatementNotes
from dataflow_assets.languages.common.tokens import Place, Unreadable
from dataflow_assets.languages.sql.reader.like import merge
from dataflow_assets.languages.sql.reader.relation import FlinkCatalog, FlinkRefusals, Relation
from dataflow_assets.languages.sql.reader.relations import relations
from dataflow_assets.languages.sql.reader.several_inserts import PlannedInsert
from dataflow_assets.languages.sql.reader.syntax import FlinkCreateTable, Query, View
from dataflow_assets.languages.sql.reader.tables import FlinkDeclared, declare_table, environment_of


@dataclass
class FileState(StatementNotes):
    """The names and findings of a file while it is read from beginning to end."""

    text: str
    settings: dict[str, str] = field(default_factory=dict)
    written: dict[str, FlinkCreateTable] = field(default_factory=dict)
    tables: dict[str, FlinkDeclared] = field(default_factory=dict)
    views: dict[str, tuple[View, tuple[Relation, ...]]] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    beside: Mapping[str, Sequence[tuple[str, FlinkDeclared | None]]] = field(default_factory=dict)
    """By the name of a table the files of the folder that declare it; None: with findings there."""
    flows: dict[str, Place] = field(default_factory=dict)
    """By their names the queries of the flows that were read."""
    made: dict[str, list[PlannedInsert]] = field(default_factory=dict)
    """By their targets the INSERTs that were read."""
    groups: dict[tuple[str, str, str], Place] = field(default_factory=dict)
    """By brokers, topic and consumer group the first INSERT that begins where the group is."""

    def catalog(self) -> FlinkCatalog:
        """The tables and views that queries can read; the file's own tables come first."""
        own = {*self.written, *self.views, *self.broken}
        others = {name: found for name, found in self.beside.items() if name not in own}
        usable = {name: found[0][1] for name, found in others.items() if len(found) == 1}
        tables = {name: one for name, one in usable.items() if one is not None}
        unusable = {
            name: _unusable(name, one) for name, one in others.items() if name not in tables
        }
        sound = {name: one for name, one in self.tables.items() if name not in self.broken}
        views = {name: one for name, one in self.views.items() if name not in self.broken}
        return FlinkCatalog(tables | sound, views, frozenset(self.broken), unusable)


def _unusable(name: str, declarations: Sequence[tuple[str, FlinkDeclared | None]]) -> str:
    files = ", ".join(sorted(file for file, _ in declarations))
    if len(declarations) == 1:
        return f"{name} is declared in {files}, which has findings about it"
    reason = f"several files of this folder declare {name}: {files}"
    return f"{reason}; declare it in this one, or in one of them"


def declare(one: FlinkCreateTable | View, state: FileState) -> None:
    """Takes a table or view for the statements behind it; mistakes are findings."""
    is_taken = one.name in state.written or one.name in state.views
    kind = "table" if isinstance(one, FlinkCreateTable) else "view"
    if is_taken and one.if_not_exists:
        return
    if is_taken:
        state.wrong(f"{kind} {one.name}", one.place, "is declared twice in this file")
        state.broken.add(one.name)
        return
    if isinstance(one, View):
        with naming(one.named, state):
            rows = _rows(one, state)
        _keep(one, rows, state)
        return
    try:
        table = _with_like(one, state)
    except Unreadable as error:
        if not error.message.endswith("has findings of its own"):
            state.wrong(f"table {one.name}", error.place, error.message)
        state.broken.add(one.name)
        return
    state.written[one.name] = table
    declared = declare_table(table, state.file, state.notes)
    if declared is None:
        state.broken.add(one.name)
        return
    state.tables[one.name] = declared
    try:
        declared.scope(environment_of(state.settings))
    except Unreadable as error:
        state.wrong(f"table {one.name}", error.place, error.message)
        state.broken.add(one.name)
        del state.tables[one.name]


def _with_like(table: FlinkCreateTable, state: FileState) -> FlinkCreateTable:
    if table.like is None:
        return table
    name = table.like.table
    other = state.written.get(name)
    if other is None or (name in state.tables and name in state.broken):  # it was to be another one
        return merge(table, state.catalog().table(table.like.table, table.like.place).table)
    return merge(table, other)


@contextmanager
def naming(named: Sequence[View], state: FileState) -> Iterator[None]:
    """The queries of a WITH have names in its statement alone, which hide those of the file."""
    views = state.views, state.broken
    state.views, state.broken = copy(state.views), copy(state.broken)
    try:
        own = set[str]()
        for one in named:
            if one.name in own:
                state.wrong(f"query {one.name}", one.place, "is twice in this WITH")
            rows = _rows(one, state)
            state.broken.discard(one.name)
            own.add(one.name)
            _keep(one, rows, state)
        yield
    finally:
        state.views, state.broken = views


def _rows(view: View, state: FileState) -> tuple[Relation, ...]:
    return query_of(f"view {view.name}", view.query, state)


def _keep(view: View, rows: tuple[Relation, ...], state: FileState) -> None:
    if not rows:
        state.broken.add(view.name)
    else:
        state.views[view.name] = view, rows


def query_of(what: str, query: Query, state: FileState) -> tuple[Relation, ...]:
    """Returns what a query reads and makes, table by table; none, with findings, where it is wrong.

    `what`: the statement that it is in.
    """
    try:
        return relations(query, state.catalog(), environment_of(state.settings))
    except Unreadable as error:
        if not error.message.endswith("has findings of its own"):
            state.wrong(what, error.place, error.message)
    except FlinkRefusals as error:
        for place, message in error.found:
            state.wrong(what, place, message)
    return ()
