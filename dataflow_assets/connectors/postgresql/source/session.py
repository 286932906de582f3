"""The driver's connection to a table or query of PostgreSQL that is polled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from typing_extensions import override

from dataflow_assets.connectors.postgresql.client import lock_name, qualified_name
from dataflow_assets.connectors.postgresql.options import PostgresqlSourceOptions
from dataflow_assets.connectors.postgresql.pool import lent_to_source
from dataflow_assets.connectors.postgresql.source.polled import (
    PolledPostgresqlTable,
    polled_table,
)
from dataflow_assets.connectors.postgresql.source.relation import identity
from dataflow_assets.connectors.postgresql.table.access import missing_table_error
from dataflow_assets.sdk.polling import PolledSession
from dataflow_assets.sdk.server_failure import translate_errors

_MAKE = """
CREATE TABLE IF NOT EXISTS {place} (
  id SERIAL PRIMARY KEY, created_at TIMESTAMPTZ DEFAULT now(), updated_at TIMESTAMPTZ DEFAULT now()
)
"""


class PostgresqlSourceSession(PolledSession):
    """One table or query; what it answers is of one transaction."""

    _source: PostgresqlSourceOptions

    def __init__(self, source: PostgresqlSourceOptions, flow: str) -> None:
        super().__init__(source, flow)
        self._prepare()

    @property
    @override
    def identity(self) -> str:
        return self._identity

    @override
    def close(self) -> None: ...

    def _prepare(self) -> None:
        opening = f"opening {self._source.title}"
        with translate_errors(opening), lent_to_source(self._source.dsn()) as link:
            if self._source.auto_create_table and self._source.names_table:
                # A role that may not create tables may well read one that is there.
                place = qualified_name(*self._source.place())
                ((there,),) = link.execute("SELECT to_regclass($1::text) IS NOT NULL", place)
                if not there:
                    link.execute("BEGIN")
                    lock_name(link, ".".join(self._source.place()))
                    link.execute(_MAKE.format(place=place))
                    link.execute("COMMIT")
            database, oid = identity(link, self._source)
            if oid is None and not self._source.query:
                raise missing_table_error(link, self._source)
            self._identity = f"{database}.{oid or 'query'}"

    @override
    @contextmanager
    def asking(self) -> Iterator[PolledPostgresqlTable]:
        looking = f"looking for new rows in {self._source.title}"
        with translate_errors(looking), lent_to_source(self._source.dsn()) as link:
            table = polled_table(link, self._source)
            if table.identity and not self._identity.endswith(f".{table.identity}"):
                raise self._source.recreated_error()
            link.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield table
            link.execute("COMMIT")
