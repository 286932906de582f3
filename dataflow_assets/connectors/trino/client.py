"""The one module that talks to Trino: statements over its HTTP protocol, by the package `trino`.

A statement that was posted runs only once its first answer is fetched: its id is known before
anything of it can have happened (`prepare`). Posting it twice is harmless, so is fetching.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import msgspec

from dataflow_assets.connectors.trino.connection import TrinoConnection
from dataflow_assets.connectors.trino.errors import ANY, DENIED, Coordinator, TrinoFailure, failing
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.oauth import tokens
from dataflow_assets.secrets.tls import pem

if TYPE_CHECKING:
    from requests import Session
    from trino.client import TrinoRequest, TrinoStatus

log = logging.getLogger(__name__)

Rows = list[list[Any]]
USER = "dataflow-operator"
_TRIES = 3  # of one request; a statement is tried again by the run, with backoff
_ANSWER_SECONDS = 30.0
_FORGOTTEN = frozenset({404, 410})


class TrinoClient:
    """Statements of one catalog and schema, one at a time. `source` shows in Trino's list."""

    def __init__(self, options: TrinoConnection, source: str) -> None:
        from trino.client import ClientSession, TrinoRequest

        for text in options.in_clear:
            _warn(text)
        self._where = Coordinator(options.host, options.port, _authorities(options) or "")
        self._http = _session(options)
        self._encrypted = options.scheme == "https"
        self._anonymous = options.keycloak is None
        # An authenticated user is the token's own, where none is named.
        sends = options.keycloak is not None and options.scheme == "https"
        user = options.user or (None if sends else USER)
        session = ClientSession(
            user=user,  # type: ignore[arg-type]  # a header that is None is not sent
            catalog=options.catalog,
            schema=options.usual_schema(),
            source=source,
            properties={"query_max_run_time": f"{options.seconds}s"},
            timezone="UTC",
        )
        self._request: TrinoRequest = TrinoRequest(
            options.host,
            options.port,
            session,
            http_session=self._http,
            http_scheme=options.scheme,
            max_attempts=_TRIES,
            request_timeout=(10.0, _ANSWER_SECONDS),
        )

    def rows(self, sql: str) -> Rows:
        """All rows of a small answer. Raises Failure."""
        return [row for page in self.pages(sql) for row in page]

    def value(self, sql: str) -> Any:
        """The first value of the first row; None where there is none. Raises Failure."""
        rows = self.rows(sql)
        return rows[0][0] if rows else None

    def run(self, sql: str) -> int:
        """Runs a statement to its end; how many rows it has written. Raises Failure."""
        return self.prepare(sql).run()

    def create(self, sql: str) -> None:
        """Runs a CREATE TABLE IF NOT EXISTS. Raises Failure.

        Trino looks first and creates then: of two that come at once, both may find no table, and
        the slower one is refused, each time in other words. It finds the table when it asks again.
        """
        try:
            self.run(sql)
        except TrinoFailure as failure:
            if not failure.name or failure.name == DENIED:
                raise
            self.run(sql)

    def pages(self, sql: str) -> Iterator[Rows]:
        """The answer as it comes. It ends only when all of it came. Raises Failure."""
        statement = self.prepare(sql)
        try:
            yield from statement.pages()
        finally:
            statement.close()

    def describe(self, sql: str) -> list[tuple[str, str]]:
        """Names and types of what a query would answer; no row of it is read. Raises Failure."""
        statement = self.prepare(f"SELECT * FROM ({sql}) LIMIT 0")  # noqa: S608 - the caller's own
        statement.run()
        return statement.columns

    def prepare(self, sql: str) -> Statement:
        """Hands a statement over that does not run yet. Raises Failure."""
        with failing(self._where, anonymous=self._anonymous):
            status = self._request.process(self._request.post(sql))
        return Statement(self._request, self._where, status, encrypted=self._encrypted)

    def close(self) -> None:
        self._http.close()


class Statement:
    """One statement that Trino knows."""

    def __init__(
        self, request: TrinoRequest, where: Coordinator, status: TrinoStatus, *, encrypted: bool
    ) -> None:
        self._request, self._where, self._status = request, where, status
        self._encrypted = encrypted
        self._ended = False
        self._columns: list[tuple[str, str]] = []

    @property
    def columns(self) -> list[tuple[str, str]]:
        """Names and types of the answer, as far as it has come."""
        return self._columns

    @property
    def id(self) -> str:
        return str(self._status.id)

    def run(self) -> int:
        """To the end; how many rows were written. Raises Failure.

        Where it is stopped before, the statement is cancelled: it would go on for minutes.
        """
        try:
            for _ in self.pages():
                pass
        finally:
            self.close()
        return int(self._status.update_count or 0)

    def pages(self) -> Iterator[Rows]:
        """The answer as it comes. Raises Failure."""
        while True:
            if self._status.columns:
                self._columns = [(str(c["name"]), str(c["type"])) for c in self._status.columns]
            if self._status.rows:
                yield cast("Rows", self._status.rows)
            if self._status.next_uri is None:
                self._ended = True
                return
            self._status = self._next(self._status.next_uri)

    def _next(self, uri: str) -> TrinoStatus:
        if self._encrypted and not uri.startswith("https://"):
            self._ended = True
            raise PermanentError(
                f"{self._where} answers over https that it goes on over http: the token would be "
                "sent without encryption; set http-server.process-forwarded=true in Trino's "
                "configuration, for it is behind a proxy"
            )
        try:
            with failing(self._where):
                return self._request.process(self._request.get(uri))
        except TrinoFailure as failure:
            self._ended = bool(failure.name)
            if failure.status not in _FORGOTTEN:
                raise
            self._ended = True
            raise TrinoFailure(
                f"{self._where} does not know query {self.id} any more: was the coordinator "
                "started again?"
            ) from None

    def close(self) -> None:
        """Cancels what has not come to its end: nobody waits for it any more."""
        if self._ended or self._status.next_uri is None:
            return
        self._ended = True
        try:
            with failing(self._where):
                self._request.delete(self._status.next_uri)
        except ANY:
            log.debug("query %s could not be cancelled", self.id)


def _session(options: TrinoConnection) -> Session:
    from requests import Session

    from dataflow_assets.sdk.authorities import OwnAuthorities
    from dataflow_assets.sdk.bearer import Bearer

    session = Session()
    authorities = _authorities(options)
    if authorities:
        session.mount("https://", OwnAuthorities(authorities))
    if (keycloak := options.keycloak) is not None:
        grant = keycloak.grant(authorities)
        token = keycloak.token
        bearer = tokens(grant) if grant else (token.get_secret_value() if token else "")
        session.auth = Bearer(bearer, "keycloak.token")
        session.trust_env = False  # a .netrc would win over the token
    return session


def _authorities(options: TrinoConnection) -> str | None:
    """The certificates as PEM text; None for the usual ones. Raises PermanentError."""
    text = pem(options.ca.get_secret_value() if options.ca else None, "ca")
    return text or None


def quote(*names: str) -> str:
    """Identifiers as SQL takes them, joined by dots."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


def name_list(names: Sequence[str]) -> str:
    return ", ".join(quote(name) for name in names)


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def rows_of(columns: Mapping[str, str], values: Sequence[Sequence[Any]]) -> str:
    """Returns what stands behind FROM for rows that are part of the statement.

    As one literal: thousands of expressions take the coordinator seconds to look at.

    Args:
        columns: by name the type that a value of JSON is taken as.
        values: the rows, values as JSON has them.
    """
    return rows_of_json(columns, msgspec.json.encode(values).decode())


def rows_of_json(columns: Mapping[str, str], text: str) -> str:
    """The same from the rows as JSON: an array of arrays."""
    return unnest(columns, literal(text))


def unnest(columns: Mapping[str, str], text: str) -> str:
    """Makes rows of an expression of SQL whose value is such an array."""
    kinds = ", ".join(f"{quote(name)} {kind}" for name, kind in columns.items())
    names = name_list(list(columns))
    return f"UNNEST(CAST(json_parse({text}) AS ARRAY(ROW({kinds})))) AS given ({names})"


@cache
def _warn(text: str) -> None:
    log.warning("%s", text)
