"""The polling source: which rows are read, and which are not read again."""

from __future__ import annotations

import json
import logging
import threading
import time
from contextlib import closing
from typing import Any

import psycopg
import pytest

import devservers
from dataflow_assets.connectors.postgresql import pool
from dataflow_assets.contracts import Limit, PartSlice, system_name
from dataflow_assets.errors import DataflowError, PermanentError, TransientError
from tests.sdk.polled import Polled

TRACKED = "id int PRIMARY KEY, name text, updated_at timestamptz"
AGO = "now() - interval '1 hour'"


@pytest.fixture
def polled(postgresql: devservers.PostgreSQL, schema: str) -> Polled:
    """An appended target: whatever is read twice stands twice."""
    made = Polled(postgresql.dsn(), schema)
    made.run(f"CREATE TABLE source ({TRACKED})")
    made.run("CREATE TABLE target (id int, name text, updated_at timestamptz)")
    return made


def names(polled: Polled) -> list[str]:
    return [str(name) for (name,) in polled.rows("name", 'name COLLATE "C"')]


def add(polled: Polled, *names: str, at: str = AGO) -> None:
    for name in names:
        polled.run(
            "INSERT INTO source SELECT coalesce(max(id), 0) + 1, %s, " + at + " FROM source", name
        )


def test_new_and_changed_rows_are_read_once(polled: Polled) -> None:
    add(polled, "a", "b")
    polled.drain()
    assert names(polled) == ["a", "b"]
    assert polled.drain() == 0
    add(polled, "c", at="now()")
    polled.run("UPDATE source SET name = 'B', updated_at = now() WHERE id = 2")
    polled.drain()
    assert names(polled) == ["B", "a", "b", "c"]
    assert polled.drain() == 0


def test_rows_of_one_moment_are_neither_skipped_nor_repeated(polled: Polled) -> None:
    moment = "timestamptz '2026-01-02 03:04:05.678901+00'"
    add(polled, "a", "b", at=moment)
    polled.drain()
    for name in "cdefghi":
        add(polled, name, at=moment)
    polled.records = 2
    assert polled.drain() == 4
    assert names(polled) == list("abcdefghi")
    position = json.loads(str(polled.position()))
    assert position["change"] == "2026-01-02 03:04:05.678901+00"
    assert position["order"] == "9"


def test_a_microsecond_is_a_difference(polled: Polled) -> None:
    add(polled, "b", at="timestamptz '2026-01-02 03:04:05.000002+00'")
    polled.drain()
    polled.run("INSERT INTO source VALUES (0, 'late', '2026-01-02 03:04:05.000001+00')")
    polled.run("INSERT INTO source VALUES (-1, 'next', '2026-01-02 03:04:05.000003+00')")
    polled.drain()
    assert names(polled) == ["b", "next"]


def test_the_bound_is_fixed_before_anything_is_read(polled: Polled) -> None:
    add(polled, *"abcdefgh")
    polled.records = 2
    spans = polled.spans()
    with closing(polled.source.open("x")) as session:
        span = session.plan(session.start(), Limit(2))
    polled.run("UPDATE source SET name = 'B', updated_at = now() WHERE id = 2")
    add(polled, "z", at="now()")
    assert [piece for piece in span.slices if isinstance(piece, PartSlice)]
    read = [row["name"] for piece in span.slices for b in polled.source.batches(piece, frozenset())
            for row in b.to_pylist()]  # fmt: skip
    assert sorted(read) == list("acdefgh")
    list(spans)
    polled.drain()
    assert names(polled) == ["B", *"acdefgh", "z"]


def test_rows_without_a_change_value_are_read_in_the_first_load_alone(
    polled: Polled, caplog: pytest.LogCaptureFixture
) -> None:
    add(polled, "a", "b")
    add(polled, "none", "nothing", at="NULL::timestamptz")
    polled.drain()
    assert names(polled) == ["a", "b", "none", "nothing"]
    assert polled.drain() == 0
    assert "no place in the order" not in caplog.text
    add(polled, "later", at="NULL::timestamptz")
    add(polled, "c", at="now()")
    with caplog.at_level(logging.WARNING):
        polled.drain()
    assert names(polled) == ["a", "b", "c", "none", "nothing"]
    assert "1 rows that came after the first load have no updated_at" in caplog.text


def test_a_table_without_any_change_value(polled: Polled) -> None:
    add(polled, "none", "nothing", at="NULL::timestamptz")
    polled.drain()
    assert polled.drain() == 0
    add(polled, "a", at="now()")
    polled.drain()
    assert names(polled) == ["a", "none", "nothing"]


def test_created_at_counts_where_updated_at_is_null(polled: Polled) -> None:
    polled.run("ALTER TABLE source ADD created_at timestamptz DEFAULT now()")
    polled.run("ALTER TABLE target ADD created_at timestamptz")
    add(polled, "a", "b", at="NULL::timestamptz")
    add(polled, "c")
    polled.drain()
    add(polled, "d", at="NULL::timestamptz")
    polled.run("UPDATE source SET name = 'A', updated_at = now() WHERE id = 1")
    polled.drain()
    assert polled.drain() == 0
    assert names(polled) == ["A", "a", "b", "c", "d"]


def test_an_index_on_updated_at_alone_serves(polled: Polled) -> None:
    polled.run("ALTER TABLE source ADD created_at timestamptz DEFAULT now() - interval '2 days'")
    polled.run(
        "INSERT INTO source (id, name, updated_at) SELECT i, i::text, now() - i * interval '1 min' "
        "FROM generate_series(1, 20000) i"
    )
    polled.run("CREATE INDEX ON source (updated_at)")
    polled.run("ANALYZE source")
    before = _scans(polled)
    with closing(polled.source.open("x")) as session:
        end = json.loads(str(session.end()["table"]))
        polled.run("UPDATE source SET updated_at = now() WHERE id < 5")
        assert len(session.plan({"table": json.dumps(end)}, Limit()).slices) == 1
        assert session.lag({"table": json.dumps(end)}).records == 4
    sequential, by_index = _scans(polled)
    assert sequential == before[0]
    assert by_index > before[1] + 5


_OTHERS = """
SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
AND backend_type = 'client backend'
"""


def _scans(polled: Polled) -> tuple[int, int]:
    """How often the table was read as a whole, and by an index."""
    pool._close_idle()
    deadline = time.monotonic() + 5  # of a server that others use, too
    while polled.run(_OTHERS) and time.monotonic() < deadline:  # sessions tell when they end
        time.sleep(0.05)
    ((sequential, by_index),) = polled.run(
        "SELECT seq_scan, idx_scan FROM pg_stat_user_tables "
        f"WHERE relid = '{polled.schema}.source'::regclass"
    )
    return sequential, by_index


@pytest.mark.parametrize(
    "options",
    [{}, {"changeTrackingColumn": "id"}, {"changeTrackingColumn": "id", "orderByColumn": "id"}],
)
def test_a_table_that_is_read_by_its_key_alone(polled: Polled, options: dict[str, str]) -> None:
    polled.options = options
    polled.run("ALTER TABLE source DROP updated_at")
    polled.run("INSERT INTO source SELECT i, 'n' || i FROM generate_series(1, 25) i")
    polled.records = 4
    assert polled.drain() == 7
    polled.run("UPDATE source SET name = 'other'")
    assert polled.drain() == 0
    polled.run("INSERT INTO source VALUES (26, 'n26'), (1000, 'n1000')")
    polled.drain()
    assert len(polled.rows()) == 27


def test_rows_without_a_key_are_read_in_the_first_load(polled: Polled) -> None:
    polled.run("ALTER TABLE source DROP CONSTRAINT source_pkey")
    polled.run("ALTER TABLE source ALTER id DROP NOT NULL")
    same = "timestamptz '2026-01-02 00:00:00+00'"
    add(polled, "a", "b", at=same)
    polled.run(f"INSERT INTO source VALUES (NULL, 'x', {same}), (NULL, 'y', {AGO})")
    polled.records = 1
    polled.drain()
    assert names(polled) == ["a", "b", "x", "y"]
    polled.run("INSERT INTO source VALUES (NULL, 'z', now())")
    polled.drain()
    assert names(polled) == ["a", "b", "x", "y", "z"]
    assert polled.drain() == 0


def test_rows_of_the_future_wait(polled: Polled, caplog: pytest.LogCaptureFixture) -> None:
    add(polled, "a")
    add(polled, "ahead", at="now() + interval '1 hour'")
    polled.drain()
    assert names(polled) == ["a"]
    add(polled, "b", at="now()")
    with caplog.at_level(logging.WARNING):
        polled.drain()
    assert names(polled) == ["a", "b"]
    assert "lies in the future of the database's clock" in caplog.text
    polled.run("UPDATE source SET updated_at = now() WHERE name = 'ahead'")  # its time has come
    polled.drain()
    assert names(polled) == ["a", "ahead", "b"]


def test_keys_are_compared_by_the_database(polled: Polled) -> None:
    """As text 10 comes before 9, and 'b' before 'C' in some collations."""
    polled.run("DROP TABLE source, target")
    polled.run("CREATE TABLE source (id text PRIMARY KEY, name text, updated_at timestamptz)")
    polled.run("CREATE TABLE target (id text, name text, updated_at timestamptz)")
    keys = ["9", "10", "b", "C", "ä", "", "'; DROP TABLE source; --", "a b"]
    for key in keys:
        polled.run("INSERT INTO source VALUES (%s, 'x', '2026-01-01')", key)
    polled.records = 2
    polled.drain()
    assert sorted(str(key) for (key,) in polled.rows("id")) == sorted(keys)
    assert polled.drain() == 0


class TestOverlap:
    @pytest.fixture
    def late(self, polled: Polled) -> Polled:
        polled.options = {"overlapSeconds": 60}
        polled.run("ALTER TABLE target ADD PRIMARY KEY (id)")
        polled.sink_options = {"upsertMode": True}
        return polled

    def test_a_row_that_is_committed_late_arrives(self, late: Polled) -> None:
        add(late, "a")
        with psycopg.connect(late.dsn) as connection:
            connection.execute(f"INSERT INTO {late.schema}.source VALUES (7, 'late', now())")
            add(late, "b", at="clock_timestamp()")
            late.drain()
            assert names(late) == ["a", "b"]
        late.drain()
        assert names(late) == ["a", "b", "late"]

    def test_once_the_overlap_has_passed_nothing_is_read(self, late: Polled) -> None:
        add(late, "a", at="now()")
        late.drain()
        with closing(late.source.open("x")) as session:
            assert not session.lags("table", late.position(), session.end()["table"])
        late.options = {"overlapSeconds": 1}
        with closing(late.source.open("x")) as session:
            while not session.lags("table", late.position(), session.end()["table"]):
                time.sleep(0.1)
            assert late.drain() == 1
            assert not session.lags("table", late.position(), session.end()["table"])
        assert late.drain() == 0

    def test_an_overlap_of_more_rows_than_a_span_has_is_read_to_its_end(self, late: Polled) -> None:
        """The piece that is read again must not begin anew with each span."""
        late.options |= {"readBatchSize": 1}
        many = [f"row {n}" for n in range(10, 22)]
        add(late, *many, at="now()")
        late.drain()
        assert names(late) == many
        with psycopg.connect(late.dsn) as connection:
            connection.execute(f"INSERT INTO {late.schema}.source VALUES (700, 'late', now())")
            add(late, "row 9", at="clock_timestamp()")
            late.drain()
            assert names(late) == [*many, "row 9"]
        add(late, "row 99", at="now()")
        late.drain()
        assert names(late) == ["late", *many, "row 9", "row 99"]

    def test_without_it_such_a_row_is_missed(self, late: Polled) -> None:
        late.options = {}
        with psycopg.connect(late.dsn) as connection:
            connection.execute(f"INSERT INTO {late.schema}.source VALUES (7, 'late', now())")
            add(late, "b", at="clock_timestamp()")
            late.drain()
        late.drain()
        assert names(late) == ["b"]


class TestQueries:
    def test_with_a_change_column_it_is_read_like_a_table(self, polled: Polled) -> None:
        query = f"SELECT id, upper(name) AS name, updated_at FROM {polled.schema}.source -- all;"
        polled.options = {"query": query, "changeTrackingColumn": "updated_at"}
        add(polled, "a", "b")
        polled.drain()
        assert polled.drain() == 0
        add(polled, "c", at="now()")
        polled.drain()
        assert names(polled) == ["A", "B", "C"]

    def test_without_one_each_read_is_of_all_its_rows(self, polled: Polled) -> None:
        polled.options = {"query": f"SELECT * FROM {polled.schema}.source;", "table": None}
        polled.run("ALTER TABLE target ADD PRIMARY KEY (id)")
        polled.sink_options = {"upsertMode": True}
        add(polled, "a", "b")
        assert polled.drain() == 1
        polled.run("UPDATE source SET name = 'A' WHERE id = 1")
        assert polled.drain() == 1
        assert names(polled) == ["A", "b"]

    @pytest.mark.parametrize(
        ("query", "words"),
        [
            ("SELEC now()", r"syntax error at or near .+ \(42601\)"),
            ("SELECT * FROM nowhere", r"relation \"nowhere\" does not exist \(42P01"),
            (
                "SELECT 1 AS id",
                "has no column updated_at, which changeTrackingColumn names; it has",
            ),
            (
                "SELECT now() AS updated_at",
                "has no column id: set orderByColumn to a unique column",
            ),
        ],
    )
    def test_what_is_wrong_with_it_is_one_sentence(
        self, polled: Polled, query: str, words: str
    ) -> None:
        polled.options = {"query": query, "changeTrackingColumn": "updated_at"}
        with pytest.raises(PermanentError, match=words):
            polled.drain()


def test_a_crash_in_a_first_load_repeats_one_range(
    polled: Polled, monkeypatch: pytest.MonkeyPatch
) -> None:
    polled.run(f"INSERT INTO source SELECT i, i::text, {AGO} FROM generate_series(1, 100) i")
    polled.records = 10
    spans = polled.spans()
    monkeypatch.setenv("DATAFLOW_FAILPOINT", "postgresql.read:raise:3")
    monkeypatch.setenv("DATAFLOW_FAILPOINT_TOKEN", polled.schema)
    with pytest.raises(TransientError, match=r"postgresql\.read"):
        next(spans)
    assert len(polled.rows()) == 20
    polled.run("UPDATE source SET name = 'changed', updated_at = now() WHERE id = 25")
    assert polled.drain() == 2 + 6 + 1
    rows = polled.rows("id, name", "id, name")
    assert len(rows) == 100
    assert [name for id_, name in rows if id_ == 25] == ["changed"]


def test_parts_have_the_same_borders_after_a_crash(polled: Polled) -> None:
    polled.run(f"INSERT INTO source SELECT i, i::text, {AGO} FROM generate_series(1, 100) i")
    with closing(polled.source.open("x")) as session:
        span = session.plan(session.start(), Limit(10))
        again = session.plan(session.start(), Limit(10), session.fold(span.upto))
    assert [piece.part for piece in span.slices if isinstance(piece, PartSlice)] == [
        piece.part.replace('"high": "40"', '"high": "40"')
        for piece in again.slices
        if isinstance(piece, PartSlice)
    ]
    assert again.upto == span.upto


class TestPlaces:
    def test_earliest_latest_and_a_moment(self, polled: Polled) -> None:
        add(polled, "a", at="timestamptz '2026-01-01 00:00:00.000001+00'")
        add(polled, "b", at="timestamptz '2026-01-01 00:00:00.000002+00'")
        with closing(polled.source.open("x")) as session:
            counts = [
                session.lag(session.start(where)).records
                for where in ("earliest", "latest", "2026-01-01T00:00:00.000002Z", "2026-02-02")
            ]
            assert counts == [2, 0, 1, 0]
            found = json.loads(str(session.start("2099-01-01T00:00:00Z")["table"]))
            assert found["change"] == "2026-01-01 00:00:00.000002+00"
            with pytest.raises(PermanentError, match="'yesterday' is not a point in time; allowed"):
                session.start("yesterday")

    def test_lag_is_told_by_the_database_s_clock(self, polled: Polled) -> None:
        with closing(polled.source.open("x")) as session:
            assert session.lag(session.start()).records == 0
            add(polled, "a", "b")
            lag = session.lag(session.start())
            assert lag.records == 2
            assert 3590 < (lag.seconds or 0) < 3700
            assert session.lag(session.end()).seconds == 0

    @pytest.mark.parametrize(
        ("document", "left"),
        [
            (
                {
                    "lastReadChangeTime": "2026-01-01T00:00:00.000002Z",
                    "lastReadOrderByValue": 2,
                },
                ["c", "d"],
            ),
            ({"lastReadChangeTime": "2026-01-01T00:00:00.000002999Z"}, ["d"]),
            ({"lastReadID": 3.0}, ["d"]),
            ({"lastReadID": 1, "lastReadTime": "2026-01-01 00:00:00"}, ["a", "b", "c", "d"]),
        ],
    )
    def test_checkpoints_of_the_operator(
        self, polled: Polled, document: dict[str, Any], left: list[str]
    ) -> None:
        for name, micro in zip("abcd", (1, 2, 2, 3), strict=True):
            add(polled, name, at=f"timestamptz '2026-01-01 00:00:00.00000{micro}+00'")
        with closing(polled.source.open("x")) as session:
            positions = session.adopt(document)
            span = session.plan(positions, Limit())
        rows = [row for piece in span.slices for batch in polled.source.batches(piece, frozenset())
                for row in batch.to_pylist()]  # fmt: skip
        assert [row["name"] for row in rows] == left

    def test_what_is_no_checkpoint_is_refused(self, polled: Polled) -> None:
        words = "no checkpoint of a postgresql source"
        with (
            closing(polled.source.open("x")) as session,
            pytest.raises(PermanentError, match=words),
        ):
            session.adopt({"snapshotID": 1})

    def test_rows_can_be_looked_at(self, polled: Polled) -> None:
        add(polled, *"abcde")
        with closing(polled.source.open("x")) as session:
            found = session.peek(session.start(), 3)["table"]
            assert found.column("name").to_pylist() == ["a", "b", "c"]
            assert session.peek(session.end(), 3) == {}


def test_metadata_is_that_of_the_reference(polled: Polled) -> None:
    polled.run("ALTER TABLE source ADD created_at timestamptz")
    polled.run(
        "INSERT INTO source VALUES (1, 'a', now(), now()), (2, 'b', now(), now() - '1s'::interval)"
    )
    found = polled.read(frozenset({"id", "operation"}))
    assert found.column(system_name("id")).to_pylist() == [1, 2]
    assert found.column(system_name("operation")).to_pylist() == ["insert", "update"]
    assert polled.source.metadata(PartSlice("part-0", None, "")) == {
        "table": f"{polled.schema}.source"
    }


def test_a_table_made_anew_is_another_one(polled: Polled) -> None:
    add(polled, "a")
    polled.drain()
    with closing(polled.source.open("x")) as session:
        before = session.identity
        polled.run(f"DROP TABLE source; CREATE TABLE source ({TRACKED})")
        with pytest.raises(TransientError, match="was re-created while the flow ran"):
            session.end()
    with closing(polled.source.open("x")) as session:
        assert session.identity != before
    with pytest.raises(PermanentError, match="was recreated since the last commit"):
        polled.drain()


def test_the_source_table_is_made_where_it_is_missing(polled: Polled) -> None:
    polled.run("DROP TABLE source")
    with pytest.raises(PermanentError, match="does not exist: it was dropped, or never made"):
        polled.drain()
    polled.options = {"autoCreateTable": True}
    assert polled.drain() == 0
    polled.run("INSERT INTO source DEFAULT VALUES")
    found = polled.read().to_pylist()
    assert [(row["id"], row["updated_at"] is None) for row in found] == [(1, False)]


def test_flows_that_open_at_once_make_their_source_table_one_after_the_other(
    polled: Polled, postgresql: devservers.PostgreSQL
) -> None:
    polled.run("DROP TABLE source")
    polled.options = {"autoCreateTable": True}
    failures: list[Exception] = []

    def open_flow() -> None:
        try:
            polled.source.open("x").close()
        except DataflowError as error:
            failures.append(error)

    openings = [threading.Thread(target=open_flow) for _ in range(2)]
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid"
    with (
        psycopg.connect(postgresql.dsn()) as other,
        psycopg.connect(postgresql.dsn(), autocommit=True) as watching,
    ):
        lock = other.execute("SELECT hashtext(%s)", [f"{polled.schema}.source"]).fetchone()
        other.execute("SELECT pg_advisory_xact_lock(hashtext('dataflow'), %s)", lock)
        for opening in openings:
            opening.start()
        # As the lock's table has them: bits of a number without a sign.
        while watching.execute(f"{waiting} = %s::bit(32)::bigint", lock).fetchone() != (2,):
            assert any(opening.is_alive() for opening in openings)
            time.sleep(0.01)
    for opening in openings:
        opening.join()
    assert failures == []


def test_the_checkpoint_of_something_else_is_told(polled: Polled) -> None:
    with closing(polled.source.open("x")) as session:
        with pytest.raises(DataflowError, match="not a position in a polled table"):
            session.plan({"table": "7"}, Limit())
        with pytest.raises(PermanentError, match="is of a query that was read as a whole"):
            session.plan({"table": '{"state":"query"}'}, Limit())
