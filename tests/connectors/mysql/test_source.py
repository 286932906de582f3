"""The MySQL source on a real MariaDB server: each row once, whatever its keys and its settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import pytest
from pydantic import ValidationError
from pymysql.err import OperationalError

import devservers
from dataflow_assets.connectors.mysql import MysqlSource
from dataflow_assets.connectors.mysql.client import MysqlClient
from dataflow_assets.connectors.mysql.errors import MysqlFailure
from dataflow_assets.contracts import Address, Limit, Note, Positions
from dataflow_assets.errors import DataflowError, Locked, PermanentError, TransientError
from dataflow_assets.sdk.server_failure import Fault
from dataflow_assets.spark.process import LOOPBACK

MOST = Limit(records=1_000_000)
UUIDS = [f"9b155af0-0f06-4d56-a294-3d90a9f0a63{n}" for n in range(4)]


class Table:
    """The table `t` of a database of its own, and a flow that reads it."""

    def __init__(self, server: devservers.MariaDB, database: str) -> None:
        self.server, self.database = server, database
        self.source: MysqlSource
        self.session: Any = None

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        return self.server.execute("SET time_zone = '+00:00'", *statements, database=self.database)

    def declare(self, **config: Any) -> MysqlSource:
        given = {"host": LOOPBACK, "port": self.server.port, "database": self.database}
        given |= {"user": self.server.user, "password": self.server.password, "table": "t"}
        return MysqlSource.model_validate({**given, "pollInterval": 0, **config})

    def open(self, **config: Any) -> None:
        self.source = self.declare(**config)
        self.session = self.source.open("ns/flow")
        self.at: Positions = self.session.start()

    def read(self, limit: Limit = MOST) -> list[dict[str, Any]]:
        """What has come since, to the end there is."""
        end, found = self.session.end(), list[dict[str, Any]]()
        while self.session.lags("table", self.at["table"], end["table"]):
            span = self.session.plan(self.at, limit, end)
            for piece in span.slices:
                for batch in self.source.batches(piece, frozenset()):
                    found += batch.to_pylist()
            folded = self.session.fold({**self.at, **span.upto})
            self.at = {"table": folded["table"]}
        return found

    def ids(self, limit: Limit = MOST) -> list[Any]:
        return [row["id"] for row in self.read(limit)]


@pytest.fixture
def table(mariadb: devservers.MariaDB, mysql_database: str) -> Iterator[Table]:
    made = Table(mariadb, mysql_database)
    yield made
    if made.session is not None:
        made.session.close()


GIVEN = {"host": "h", "database": "d", "user": "u"}


@pytest.mark.parametrize(
    ("config", "address"),
    [
        ({"table": "t"}, Address("mysql", "h", "d", "t")),
        ({"table": "other.t", "port": 3307}, Address("mysql", "h_3307", "other", "t")),
        ({"table": "`o.o`.`t`"}, Address("mysql", "h", "o.o", "t")),
        ({"query": "SELECT 1"}, Address("mysql", "h", None, "query_e004ebd5")),
    ],
)
def test_the_address_needs_no_network(config: dict[str, Any], address: Address) -> None:
    assert MysqlSource.model_validate(GIVEN | config).address() == address


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"table": "t", "user": None}, "user or userSecretRef is required"),
        ({}, "table or tableSecretRef is required"),
        ({"table": "t", "port": 0}, "greater than or equal to 1"),
        ({"query": "SELECT 1", "overlapSeconds": 5}, "overlapSeconds needs changeTrackingColumn"),
    ],
)
def test_what_does_not_work_is_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        MysqlSource.model_validate(GIVEN | config)


def test_commits_between_two_reads_are_seen(table: Table) -> None:
    """A session that is not in autocommit would see its first snapshot for ever."""
    table.run("CREATE TABLE t (id BIGINT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
    table.open()
    assert table.ids() == [1, 2]
    table.run("INSERT INTO t VALUES (3)")
    assert table.ids() == [3]
    assert table.ids() == []


@pytest.mark.parametrize("kind", ["timestamp", "datetime"])
@pytest.mark.parametrize("digits", [0, 3, 6])
def test_change_values_keep_every_digit(table: Table, kind: str, digits: int) -> None:
    table.run(f"CREATE TABLE t (id INT PRIMARY KEY, updated_at {kind}({digits}) NOT NULL)")
    table.open()
    for number in range(3):
        fraction = f".{number:0{digits}}" if digits else ""
        table.run(f"INSERT INTO t VALUES ({number}, '2026-01-01 00:00:00{fraction}')")
        assert table.ids() == [number]
    table.run("UPDATE t SET updated_at = '2026-02-01' WHERE id = 1")
    assert table.ids() == [1]
    assert table.ids() == []


def test_rows_of_the_second_that_runs_wait_for_its_end(table: Table) -> None:
    table.run(
        "CREATE TABLE t (id INT PRIMARY KEY, updated_at TIMESTAMP NOT NULL)",
        "INSERT INTO t VALUES (1, '2026-01-01'), (2, NOW() + INTERVAL 1 HOUR)",
    )
    table.open()
    assert table.ids() == [1]


@pytest.mark.parametrize("kind", ["TIMESTAMP(6)", "DATETIME(6)"])
def test_rows_that_are_committed_late_are_found(table: Table, kind: str) -> None:
    now = "INSERT INTO t VALUES ({}, UTC_TIMESTAMP(6) - INTERVAL {} SECOND)"
    table.run(f"CREATE TABLE t (id INT PRIMARY KEY, updated_at {kind} NOT NULL)")
    table.run(now.format(1, 5))
    table.open(overlapSeconds=3600)
    assert table.ids() == [1]
    table.run(now.format(2, 60), now.format(3, 0))
    assert table.ids() == [2, 1, 3]


KEYS: dict[str, tuple[str, list[Any]]] = {
    "case-insensitive": ("VARCHAR(20)", ["a", "B", "c", "Ö"]),
    "latin1": ("VARCHAR(20) CHARACTER SET latin1", ["A", "b", "ü"]),
    "no language": ("TEXT COLLATE utf8mb4_bin", ["B", "a", "ü"]),
    "quotes": ("VARCHAR(20) COLLATE utf8mb4_bin", ['"', "%s", "'", "\\", "\\'"]),
    "unsigned": ("BIGINT UNSIGNED", [1, 2**63, 2**64 - 1]),
    "float": ("FLOAT", [0.5, 16777216.0, 33554432.0]),
    "double": ("DOUBLE", [-1e300, 0.1, 0.30000000000000004]),
    "bytes": ("BINARY(2)", [b"\x00\x01", b"%'", b"\xff\xfe"]),
    "uuid": ("UUID", UUIDS),
    "date": ("DATE", ["2026-01-01", "2026-01-02"]),
}


@pytest.mark.parametrize("name", KEYS)
def test_keys_of_any_type_put_rows_in_order(table: Table, name: str) -> None:
    kind, values = KEYS[name]
    key = "id(20)" if kind.startswith("TEXT") else "id"
    table.run(f"CREATE TABLE t (id {kind} NOT NULL, PRIMARY KEY ({key}))")
    table.open(readBatchSize=1)
    for first in range(len(values)):
        table.run(f"INSERT INTO t VALUES ({_literal(values[first])})")
        assert list(map(str, table.ids(Limit(records=1)))) == [str(values[first])]
    assert table.ids() == []


def _literal(value: Any) -> str:
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, str):
        return f"CONVERT(x'{value.encode().hex()}' USING utf8mb4)"
    return repr(value)


def test_a_key_of_another_kind_stops_the_flow(table: Table) -> None:
    """Behind 9 as a text there is no 10: the row would be passed over in silence."""
    table.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (9)")
    table.open()
    assert table.ids() == [9]
    table.run("ALTER TABLE t MODIFY id BIGINT", "INSERT INTO t VALUES (10)")
    assert table.ids() == [10]
    table.run("ALTER TABLE t MODIFY id VARCHAR(20)", "INSERT INTO t VALUES ('100')")
    with pytest.raises(PermanentError, match="were numbers at the checkpoint, and are string now"):
        table.ids()


def test_a_checkpoint_with_a_text_for_a_number_is_refused(table: Table) -> None:
    table.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (9)")
    table.open()
    table.at = table.session.adopt({"lastReadID": "k"})
    with pytest.raises(PermanentError, match=r"has 'k' of column id, which holds numbers \(int"):
        table.ids()


@pytest.mark.parametrize("kind", ["ENUM('b', 'a')", "SET('a')", "BIT(4)", "TIME", "POINT"])
def test_what_has_no_order_is_refused_as_a_key(table: Table, kind: str) -> None:
    table.run(f"CREATE TABLE t (id {kind} NOT NULL)")
    table.open()
    with pytest.raises(PermanentError, match=r"column id has the type .*, by which rows cannot"):
        table.read()


@pytest.fixture
def odd_server(mariadb: devservers.MariaDB) -> Iterator[None]:
    """A server whose sessions begin with other settings."""
    names = ("sql_mode", "autocommit", "tx_isolation")
    before = [mariadb.execute(f"SELECT @@GLOBAL.{name}")[0][0] for name in names]
    mariadb.execute(
        "SET GLOBAL sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'",
        "SET GLOBAL autocommit = 0",
        "SET GLOBAL tx_isolation = 'SERIALIZABLE'",
    )
    yield
    for name, value in zip(names, before, strict=True):
        mariadb.execute(f"SET GLOBAL {name} = {value!r}")


@pytest.mark.usefixtures("odd_server")
def test_settings_of_the_server_change_nothing(table: Table) -> None:
    table.run("CREATE TABLE t (id VARCHAR(20) COLLATE utf8mb4_bin PRIMARY KEY)")
    table.open(readBatchSize=1)
    for value in ("\\", "a'b", 'c"d', "e\\'f"):
        table.run(f"INSERT INTO t VALUES ({_literal(value)})")
        assert table.ids() == [value]


@pytest.mark.parametrize(
    "made",
    [
        "CREATE TABLE t (id INT, `%``` INT) ENGINE = MyISAM",
        "CREATE VIEW t AS SELECT id, n AS `%``` FROM origin",
    ],
    ids=["MyISAM", "view"],
)
def test_views_and_other_engines_are_read(table: Table, made: str) -> None:
    table.run("CREATE TABLE origin (id INT, n INT)", made)
    table.run("INSERT INTO t VALUES (1, 5), (2, NULL)")
    table.open()
    assert _plain(table.read()) == [{"id": 1, "%`": 5}, {"id": 2, "%`": None}]


def test_a_query_is_read_like_a_table(table: Table) -> None:
    table.run(
        "CREATE TABLE t (id BIGINT UNSIGNED, name VARCHAR(9), body BLOB, price DECIMAL(9, 2))",
        f"INSERT INTO t VALUES (1, 'a%', x'ff', 1.5), ({2**64 - 1}, 'a%b', NULL, NULL)",
        "INSERT INTO t VALUES (2, 'x', NULL, NULL)",
    )
    query = "SELECT * FROM t WHERE name LIKE 'a%' -- all of them"
    table.open(table=None, query=query, changeTrackingColumn="id")
    first, last = table.read()
    assert (first["body"], str(first["price"]), first["name"]) == (b"\xff", "1.50", "a%")
    assert last["id"] == 2**64 - 1
    assert table.read() == []


def test_a_query_compares_texts_by_their_own_collation(table: Table) -> None:
    """By their bytes, a row `a` would come behind `B`, and not be looked for."""
    table.run(
        "CREATE TABLE t (id VARCHAR(9) COLLATE utf8mb4_general_ci PRIMARY KEY, kind ENUM('x'))"
    )
    table.open(table=None, query="SELECT * FROM t", changeTrackingColumn="id")
    for value in ("a", "B", "c"):
        table.run(f"INSERT INTO t VALUES ('{value}', 'x')")
        assert table.ids() == [value]
    table.open(table=None, query="SELECT * FROM t", changeTrackingColumn="kind")
    with pytest.raises(PermanentError, match="column kind has the type enum"):
        table.read()


def test_days_that_are_none(table: Table) -> None:
    table.run("SET sql_mode = ''", "CREATE TABLE t (id INT PRIMARY KEY, d DATE, at DATETIME)")
    table.run("SET sql_mode = ''", "INSERT INTO t VALUES (1, '0000-00-00', '0000-00-00')")
    table.open()
    assert _plain(table.read()) == [{"id": 1, "d": None, "at": None}]
    table.run("SET sql_mode = ''", "INSERT INTO t VALUES (2, '2026-02-00', NULL)")
    with pytest.raises(PermanentError, match="column d holds a day that is none"):
        table.read()


def test_json_of_mariadb_is_json(table: Table) -> None:
    table.run("CREATE TABLE t (id INT PRIMARY KEY, `a``b` JSON, plain LONGTEXT)")
    table.open()
    with table.session.asking() as asked:
        kinds = {each.name: each.field("x").metadata.get(Note.KIND) for each in _columns(asked)}
    assert kinds == {"id": None, "a`b": b"json", "plain": None}


def _columns(asked: Any) -> Any:
    return asked.relation.columns


def test_a_connection_that_the_server_has_closed_is_tried_again(table: Table) -> None:
    table.run("CREATE TABLE t (id INT PRIMARY KEY)")
    table.open()
    for (number,) in table.run(
        "SELECT id FROM information_schema.processlist "
        f"WHERE db = '{table.database}' AND id <> CONNECTION_ID()"
    ):
        with suppress(OperationalError):  # one of the test's own, which has ended by itself
            table.run(f"KILL {number}")
    with pytest.raises(TransientError, match="looking for new rows in table of mysql/"):
        table.read()


def test_a_table_that_ends_while_it_is_read_is_told(table: Table) -> None:
    table.run("CREATE TABLE t (id INT PRIMARY KEY)")
    table.open()
    table.run("DROP TABLE t")
    with pytest.raises(PermanentError, match="does not exist: it was dropped, or never made"):
        table.read()


@pytest.mark.parametrize(
    ("code", "kind", "fault", "advice"),
    [
        (1205, Locked, Fault.OUTSIDE, "another transaction holds a lock"),
        (1213, Locked, Fault.OUTSIDE, ""),
        (2013, TransientError, Fault.OUTSIDE, ""),
        (1836, TransientError, Fault.OUTSIDE, "is it a replica"),
        (1062, PermanentError, Fault.ROW, ""),
        (1644, PermanentError, Fault.LIKELY, ""),
        (1045, PermanentError, Fault.OUTSIDE, "check `user` and `password`"),
        (3159, PermanentError, Fault.OPEN, "set `tls`"),
    ],
)
def test_errors_are_judged_by_their_number(
    code: int, kind: type[DataflowError], fault: Fault, advice: str
) -> None:
    failure = MysqlFailure("words", code)
    found = failure.error("writing")
    assert type(found) is kind
    assert failure.fault is fault
    assert str(found).startswith(f"writing: words (error {code})")
    assert advice in str(found)


def _plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{n: v for n, v in row.items() if not n.startswith("\0")} for row in rows]


def test_an_answer_that_is_left_in_the_middle_is_not_read_to_its_end(table: Table) -> None:
    """A sink that has failed would wait for a billion rows that nobody needs."""
    with closing(MysqlClient(table.declare(), "tests")) as client:
        rows = client.stream("SELECT seq FROM seq_1_to_1000000000", {}, 1)
        assert next(rows) == [(1,)]
        rows.close()
