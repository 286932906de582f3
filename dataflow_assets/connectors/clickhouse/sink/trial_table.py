"""A table that stores nothing and refuses what the target refuses: in it rows are tried.

It has the engine Null, and the columns and constraints of the target. Views on it evaluate what the
target sorts and divides its rows by, and what the materialized views of the target would make of
the rows: into tables of the engine Null, too.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from dataflow_assets.connectors.clickhouse.client import Client, query_rows, quote
from dataflow_assets.connectors.clickhouse.errors import ClickhouseFailure, failing

log = logging.getLogger(__name__)

PREFIX = "dataflow_trial_"
_KEYS = """
SELECT partition_key, sorting_key FROM system.tables
WHERE database = {d:String} AND name = {t:String}
"""
_VIEWS = """
SELECT as_select, create_table_query FROM system.tables
WHERE engine = 'MaterializedView' AND as_select != '' AND (database, name) IN (
    SELECT arrayJoin(arrayZip(dependencies_database, dependencies_table))
    FROM system.tables WHERE database = {d:String} AND name = {t:String})
ORDER BY database, name
"""
OLD = 3_600  # seconds after which nobody uses such a table any more
_LEFT = """
SELECT name FROM system.tables
WHERE database = {d:String} AND match(name, '^dataflow_(trial|defaults)_[0-9a-f]{12}(_[0-9]+)?$')
    AND metadata_modification_time BETWEEN toDateTime(1) AND now() - {s:UInt32}
ORDER BY engine = 'MaterializedView' DESC
"""
_NAME = r"(?:`(?:[^`\\]|\\.)*`|\w+)"
_INTO = re.compile(rf" TO ({_NAME}\.{_NAME})")


@contextmanager
def trial_table(client: Client, place: tuple[str, str]) -> Iterator[str]:
    """Its name, in the database of the target. Raises Failure where it cannot be made."""
    trial = _ClickhouseTrial(client, place)
    try:
        trial.create()
        yield trial.name
    finally:
        trial.drop()


def sweep(client: Client, database: str) -> None:
    """Drops what a process that was killed has left; where it cannot be, a later session tries."""
    with suppress(ClickhouseFailure):
        for (name,) in query_rows(client, _LEFT, {"d": database, "s": OLD}):
            with failing():
                client.command(f"DROP TABLE IF EXISTS {quote(database, name)}")


class _ClickhouseTrial:
    def __init__(self, client: Client, place: tuple[str, str]) -> None:
        self._client, (self._database, self._target) = client, place
        self.name = f"{PREFIX}{uuid.uuid4().hex[:12]}"
        self._here = quote(self._database, self.name)
        self._made: list[str] = []

    def create(self) -> None:
        """Makes the table, and as many of the views as this user may create."""
        self._table(self._here, quote(self._database, self._target))
        known = {"d": self._database, "t": self._target}
        keys = query_rows(self._client, _KEYS, known)
        listed = ", ".join(f"tuple({key})" for key in keys[0] if key) if keys else ""
        if listed:
            query = f"SELECT tuple({listed}) AS k FROM {self._here}"  # noqa: S608 - the server's words
            with suppress(ClickhouseFailure):
                self._view(query, "ENGINE = Null")
        for select, create in query_rows(self._client, _VIEWS, known):
            with suppress(ClickhouseFailure):
                self._copy(select, create)

    def drop(self) -> None:
        for name in reversed(self._made):
            try:
                self._run(f"DROP TABLE IF EXISTS {name}")
            except ClickhouseFailure as failure:
                log.warning("%s stores nothing, and could not be dropped: %s", name, failure.reason)

    def _copy(self, select: str, create: str) -> None:
        """Makes a view of the target's, into a table like the one that it fills."""
        query = self._of_trial(select)
        if query == select:
            return  # it reads the target in a way that is not known here
        into = _INTO.search(create.partition(" AS SELECT")[0])
        if into is None:
            self._view(query, "ENGINE = Null")
            return
        like = self._next()
        self._table(like, into[1])
        self._view(query, f"TO {like}")

    def _of_trial(self, select: str) -> str:
        database, table = (
            f"(?:{re.escape(quote(name))}|{re.escape(name)})"
            for name in (self._database, self._target)
        )
        name = re.compile(rf"(?<![\w`.]){database}\.{table}(?![\w`])")
        return name.sub(lambda _: self._here, select)

    def _table(self, name: str, like: str) -> None:
        self._run(f"CREATE TABLE {name} AS {like} ENGINE = Null")
        self._made.append(name)

    def _view(self, query: str, into: str) -> None:
        name = self._next()
        self._run(f"CREATE MATERIALIZED VIEW {name} {into} AS {query}")
        self._made.append(name)

    def _next(self) -> str:
        return quote(self._database, f"{self.name}_{len(self._made)}")

    def _run(self, statement: str) -> None:
        with failing():
            self._client.command(statement)
