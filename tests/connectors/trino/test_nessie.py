"""Tables of Nessie, written through Trino: its REST catalog shows the last snapshot alone."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

import devservers
from dataflow_assets.connectors.trino import TrinoSink
from dataflow_assets.connectors.trino.client import TrinoClient
from dataflow_assets.connectors.trino.errors import TrinoFailure
from dataflow_assets.connectors.trino.sink import recovery
from dataflow_assets.connectors.trino.table.snapshots import have_stored, head
from dataflow_assets.connectors.trino.table.table import TrinoPlace, find
from dataflow_assets.contracts import Span, Target
from dataflow_assets.errors import PermanentError, TransientError
from devservers.trino import missing
from tests.connectors.nessie.driver import Trees
from tests.connectors.trino.driver import execute, left_open, opened, stored

pytestmark = [pytest.mark.heavy, pytest.mark.full, pytest.mark.timeout(900)]

TARGET = Target("ns/nessie", "trino", "h", "t")


@pytest.fixture(scope="module")
def server(
    servers_folder: Path,
    seaweedfs: devservers.SeaweedFS,
    postgresql: devservers.PostgreSQL,
    nessie: devservers.Nessie,
) -> Iterator[devservers.Trino]:
    """A coordinator of its own, which has the branch `main` as one more catalog."""
    if reason := missing():
        pytest.skip(reason)
    own = devservers.Trino(
        servers_folder / "trino-nessie",
        store=seaweedfs,
        database=postgresql,
        catalogs={"nessie": nessie.trino_catalog()},
    )
    with own:
        yield own


@pytest.fixture
def sink(server: devservers.Trino) -> TrinoSink:
    """In a schema of its own, of which no table is there yet."""
    schema = f"t_{uuid.uuid4().hex[:8]}"
    execute(server, f"CREATE SCHEMA nessie.{schema}")
    config = {"serverURL": server.uri, "catalog": "nessie", "schema": schema, "table": "target"}
    return TrinoSink.model_validate(config | {"autoCreateTable": True})


def test_a_table_without_a_snapshot_is_refused(sink: TrinoSink, nessie_catalog: Catalog) -> None:
    """Of two first writers both would be told that their rows are there."""
    names = (NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
    nessie_catalog.create_table(sink.place(), Schema(*names))
    with pytest.raises(PermanentError, match="target has no snapshot yet, and is in a catalog of"):
        opened(sink, TARGET, "first")


def test_a_commit_that_the_next_one_hides_counts(
    sink: TrinoSink, server: devservers.Trino, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First one that arrives after it was looked for, then one that was there by then."""
    session = opened(sink, TARGET, "first")
    session.table.create(pa.schema([("id", pa.int64()), ("name", pa.string())]))
    table = session._table.found
    assert table is not None
    assert session._table.able.exactly_once
    session.restart({"0": 0}, "source")
    stored(session, 0, [0, "zero"])
    monkeypatch.setattr(recovery, "_end_states", lambda *_: {})  # a coordinator that knows nothing
    with closing(TrinoClient(sink, "tests")) as client:
        base = head(client, table)
        assert base is not None
        late = client.prepare("INSERT INTO target VALUES (1, 'one')")
        left_open(session, late.id, base, {"0": 2})
        session = opened(sink, TARGET, "second")
        assert session.checkpoint.positions == {"0": 1}
        late.run()
        client.run("INSERT INTO target VALUES (2, 'of others')")
        with pytest.raises(TransientError, match="0 of 1 rows were written"):
            stored(session, 1, [1, "one"])
        session.close()
        session = opened(sink, TARGET, "third")
        assert session.checkpoint.positions == {"0": 2}
        base = head(client, table)
        written = client.prepare("INSERT INTO target VALUES (3, 'three')")
        written.run()
        client.run("INSERT INTO target VALUES (4, 'of others')")
        left_open(session, written.id, base, {"0": 3})
    session = opened(sink, TARGET, "fourth")
    assert session.checkpoint.positions == {"0": 3}
    session.close()
    query = f"SELECT id FROM nessie.{sink.usual_schema()}.target ORDER BY id"
    assert execute(server, query) == [[0], [1], [2], [3], [4]]


@pytest.mark.parametrize(
    ("upserts", "rewritten"),
    [(False, False), (False, True), (True, True)],
    ids=["appends", "appends, and files are rewritten", "upserts, and files are rewritten"],
)
def test_after_a_failed_statement_others_may_commit(
    sink: TrinoSink, server: devservers.Trino, *, upserts: bool, rewritten: bool
) -> None:
    """Their files prove that it has failed, until somebody rewrites them.

    Nothing tells then that it has failed: a repeated MERGE changes nothing, an append might.
    """
    if upserts:
        sink = sink.model_copy(update={"upsert_mode": True, "conflict_key": ("id",)})
    session = opened(sink, TARGET, "first")
    session.table.create(pa.schema([("id", pa.int64()), ("name", pa.string())]))
    session.restart({"0": 0}, "source")
    stored(session, 0, [0, "zero"])
    table = session._table.found
    assert table is not None
    with closing(TrinoClient(sink, "tests")) as client:
        base = head(client, table)
        failed = client.prepare("INSERT INTO target SELECT 1 / (id - id), 'one' FROM target")
        with pytest.raises(TrinoFailure, match="DIVISION_BY_ZERO"):
            failed.run()
        client.run("INSERT INTO target VALUES (2, 'of others')")
        client.run("INSERT INTO target VALUES (3, 'of others')")
        if rewritten:
            client.run("ALTER TABLE target EXECUTE optimize")
    left_open(session, failed.id, base, {"0": 2})
    session = opened(sink, TARGET, "second")
    if rewritten and not upserts:
        with pytest.raises(PermanentError, match="the records from 0=1 up to 0=2"):
            session.begin(Span(()))
        session.close()
        return
    assert session.checkpoint.positions == {"0": 1}
    stored(session, 1, [1, "one"])
    session.close()
    query = f"SELECT id FROM nessie.{sink.usual_schema()}.target ORDER BY id"
    assert execute(server, query) == [[0], [1], [2], [3]]


class Asked:
    """A table that the user of the sink changes, and asks about statements in doubt."""

    def __init__(self, client: TrinoClient, sink: TrinoSink) -> None:
        client.run("CREATE TABLE target (id bigint, p bigint) WITH (partitioning = ARRAY['p'])")
        found = find(client, TrinoPlace("nessie", *sink.place()))
        assert found is not None
        self.client, self.table = client, found

    def head(self) -> str | None:
        return head(self.client, self.table)

    def run(self, sql: str) -> str:
        """The id of the statement, which has ended."""
        statement = self.client.prepare(sql)
        statement.run()
        return statement.id

    def add(self, number: int, part: int) -> str:
        """One more commit of one row."""
        return self.run(f"INSERT INTO target VALUES ({number}, {part})")

    def stored(self, query: str, base: str | None) -> bool | None:
        return have_stored(self.client, self.table, {query: base}, prove=True)[query]


def test_a_statement_that_has_committed_is_never_taken_for_a_failed_one(sink: TrinoSink) -> None:
    """Whatever others do to its file alone: the file of the base stays, and commits follow."""
    with closing(TrinoClient(sink, "tests")) as client:
        asked = Asked(client, sink)
        asked.add(0, 0)
        base, one = asked.head(), asked.add(1, 1)
        asked.add(2, 1)
        assert asked.stored(one, base) is True
        asked.run("ALTER TABLE target EXECUTE optimize WHERE p = 1")
        assert asked.stored(one, base) is None
        asked.add(3, 3)
        assert asked.stored(one, base) is None
        base, other = asked.head(), asked.add(4, 4)
        asked.run("DELETE FROM target WHERE p = 4")
        assert asked.stored(other, base) is None
        asked.add(5, 5)
        assert asked.stored(other, base) is None


def test_a_table_that_is_moved_back_and_forth_shows_which_commits_it_has(
    sink: TrinoSink, nessie: devservers.Nessie
) -> None:
    """Two lines of commits have the same numbers: a file of the base tells which one is shown."""
    trees, key = Trees(nessie), sink.place()
    with closing(TrinoClient(sink, "tests")) as client:
        asked = Asked(client, sink)
        asked.add(0, 0)
        base, then = asked.head(), trees.head("main")
        one = asked.add(1, 1)
        asked.add(2, 1)
        asked.run("ALTER TABLE target EXECUTE optimize WHERE p = 1")
        later = trees.head("main")
        trees.put_back("main", key, then)
        asked.add(3, 3)
        asked.add(4, 4)
        assert client.rows("SELECT id FROM target ORDER BY id") == [[0], [3], [4]]
        assert asked.stored(one, base) is False
        trees.put_back("main", key, later)
        assert client.rows("SELECT id FROM target ORDER BY id") == [[0], [1], [2]]
        assert asked.stored(one, base) is None
        asked.add(5, 5)
        assert asked.stored(one, base) is None
