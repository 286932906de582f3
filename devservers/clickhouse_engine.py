"""Queries for chdb's engine: each in a session of its own, its output streamed through a pipe.

chdb hands over results whole, or in pieces that are each a document of their own. ClickHouse's
`INTO OUTFILE` writes any format as it is made, also into a named pipe, so memory stays flat and
Arrow streams stay one stream.
"""

from __future__ import annotations

import os
import re
import select
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from chdb import ChdbError
from chdb.session import Session

PIECE = 1 << 20
READS = re.compile(r"[\s(]*(SELECT|WITH|SHOW|DESC|DESCRIBE|EXISTS|EXPLAIN|CHECK)\b", re.IGNORECASE)
FORMAT = re.compile(r"\bFORMAT\s+(\w+)\s*(SETTINGS\s[^'()]*)?$", re.IGNORECASE)


class EngineError(Exception):
    """What the engine answered: ClickHouse's own error code and text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        found = re.search(r"Code: (\d+)\.", text)
        self.code = int(found[1]) if found else 1002  # UNKNOWN_EXCEPTION


@dataclass(frozen=True)
class Query:
    """One request to the engine. `parameters` are those of `{name:Type}` in the text."""

    text: str
    database: str
    settings: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    format: str = "TabSeparated"

    @property
    def output_format(self) -> str:
        """The format that the text names, else the one asked for beside it."""
        found = FORMAT.search(self._bare)
        return found[1] if found else self.format

    @property
    def _bare(self) -> str:
        return self.text.rstrip().removesuffix(";")

    def assignments(self) -> str:
        """One statement that gives a session the settings and parameters."""
        named_parameters = {f"param_{name}": value for name, value in self.parameters.items()}
        given = {**self.settings, **named_parameters}.items()
        return "SET " + ", ".join(f"{named(name)} = {quoted(value)}" for name, value in given)

    def into(self, file: Path) -> str:
        """The text with its output sent to a file."""
        found = FORMAT.search(self._bare)
        bare = self._bare[: found.start()] if found else self._bare
        end = f"FORMAT {self.output_format} {(found and found[2]) or ''}"
        return f"{bare}\nINTO OUTFILE {quoted(str(file))} APPEND {end}"


class Engine:
    """ClickHouse inside this process, on the data of one folder."""

    def __init__(self, folder: Path, database: str) -> None:
        self._folder = folder
        self._pipes = folder / "pipes"
        self._pipes.mkdir(exist_ok=True)
        for left in self._pipes.iterdir():
            left.unlink()
        self._root = Session(str(folder))  # the engine ends with its last session
        self._root.query(f"CREATE DATABASE IF NOT EXISTS {named(database)} ENGINE = Atomic")
        self.timezone = self._root.query("SELECT timezone()", "TSVRaw").bytes().decode().strip()

    def run(self, query: Query) -> Iterator[bytes]:
        """The output in pieces. An error is raised by the piece it happens in."""
        with _translated(), closing(self._session(query)) as session:
            if READS.match(query.text):
                yield from self._streamed(session, query)
            else:
                yield session.query(query.text, query.output_format).bytes()

    def insert(self, query: Query, into: str, settings: str, file: Path) -> int:
        """The rows of a file, in the format of the query, into a table; how many were written."""
        source = f"FROM INFILE {quoted(str(file))} {settings} FORMAT {query.format}"
        with _translated(), closing(self._session(query)) as session:
            written = session.query(f"INSERT INTO {into} {source}").rows_written()
            return int(written or 0)

    def close(self) -> None:
        """Ends the engine."""
        self._root.close()

    def _session(self, query: Query) -> Session:
        """One that knows the query's settings, parameters and database, and no other's."""
        session = Session(str(self._folder))
        try:
            if query.settings or query.parameters:
                session.query(query.assignments())
            session.query(f"USE {named(query.database)}")
        except BaseException:
            session.close()
            raise
        return session

    def _streamed(self, session: Session, query: Query) -> Iterator[bytes]:
        pipe = self._pipes / uuid.uuid4().hex
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        errors: list[BaseException] = []
        worker = threading.Thread(target=_write, args=(session, query.into(pipe), pipe, errors))
        worker.start()
        try:
            yield from _pieces(reader)
        finally:
            os.close(reader)
            self._end(worker, pipe)
            pipe.unlink()
        for error in errors:
            raise error

    def _end(self, worker: threading.Thread, pipe: Path) -> None:
        """A reader that left early ends the query too: the engine alone would go on to its end."""
        worker.join(0.2)
        while worker.is_alive():
            mine = f"query LIKE '%{pipe.name}%' AND query NOT LIKE 'KILL%'"
            self._root.query(f"KILL QUERY WHERE {mine} ASYNC")
            worker.join(1)


def named(identifier: str) -> str:
    """An identifier as SQL takes it."""
    escaped = identifier.replace("\\", "\\\\").replace("`", "\\`")
    return f"`{escaped}`"


def quoted(text: str) -> str:
    """A string as SQL takes it."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _write(session: Session, text: str, pipe: Path, errors: list[BaseException]) -> None:
    try:
        session.query(text)
    except (ChdbError, RuntimeError) as error:
        errors.append(error)
    finally:
        # A query that failed before it opened the pipe: whoever waits at the other end is woken.
        with suppress(OSError):
            os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))


def _pieces(reader: int) -> Iterator[bytes]:
    """What comes through a pipe until its writer has closed it."""
    ready = select.poll()
    ready.register(reader, select.POLLIN)
    while True:
        ready.poll()
        try:
            piece = os.read(reader, PIECE)
        except BlockingIOError:  # `_write` has just opened the pipe that the engine closed
            continue
        if not piece:
            return
        yield piece


@contextmanager
def _translated() -> Iterator[None]:
    """Errors of chdb as EngineError."""
    try:
        yield
    except (ChdbError, RuntimeError) as error:
        raise EngineError(str(error)) from error
