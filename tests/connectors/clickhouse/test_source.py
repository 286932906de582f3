"""The ClickHouse source on a real engine: each row once, whatever its change value."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

import devservers
from dataflow_assets import registry
from dataflow_assets.connectors.clickhouse import ClickhouseSource, client
from dataflow_assets.contracts import Address, Limit, Note, PartSlice, Positions, system_name
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.sdk.polling import PolledSqlSession

MOST = Limit(records=1_000_000)


class Reader:
    """A flow's side of the contract: plans, reads every part, folds."""

    def __init__(self, session: PolledSqlSession, source: ClickhouseSource) -> None:
        self.session, self.source = session, source
        self.at: Positions = session.start()
        self.spans: list[int] = []

    def read(self, limit: Limit = MOST, until: Positions | None = None) -> list[dict[str, Any]]:
        """Everything up to the end there is."""
        end = until or self.session.end()
        found: list[dict[str, Any]] = []
        while self.session.lags("table", self.at["table"], end["table"]):
            found += self.step(limit, end)
        return found

    def step(self, limit: Limit = MOST, until: Positions | None = None) -> list[dict[str, Any]]:
        span = self.session.plan(self.at, limit, until)
        self.spans.append(len(span.slices))
        batches = [
            batch for piece in span.slices for batch in self.source.batches(piece, frozenset())
        ]
        folded = self.session.fold({**self.at, **span.upto})
        self.at = {"table": folded["table"]}
        return [row for batch in batches for row in batch.to_pylist()]


@pytest.fixture
def server(clickhouse: devservers.ClickHouse, database: str) -> Iterator[Any]:
    connected: Any = client.connect(clickhouse.dsn(database), "tests")
    connected.dsn = clickhouse.dsn(database)
    yield connected
    connected.close()


def make(server: Any, columns: str, order: str = "id") -> None:
    server.command(f"CREATE TABLE t ({columns}) ENGINE = MergeTree ORDER BY {order}")


def source(server: Any, **config: Any) -> ClickhouseSource:
    given = {"connectionString": server.dsn, "table": "t", "pollInterval": 0, **config}
    return ClickhouseSource.model_validate_json(json.dumps(given), strict=True)


def reader(server: Any, **config: Any) -> Reader:
    declared = source(server, **config)
    session = declared.open("ns/flow")
    assert isinstance(session, PolledSqlSession)
    return Reader(session, declared)


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return [row["id"] for row in rows]


def insert(server: Any, values: str) -> None:
    server.command(f"INSERT INTO t VALUES {values}")


def test_is_found_by_its_type_with_the_original_s_defaults(server: Any) -> None:
    assert registry.sources()["clickhouse"] is ClickhouseSource
    declared = ClickhouseSource(connection_string=server.dsn, table="t")
    assert (declared.order_by_column, declared.change_tracking_column) == ("id", "created_at")
    assert (declared.poll_interval, declared.read_batch_size, declared.final) == (5, 0, False)


@pytest.mark.parametrize(
    ("config", "address"),
    [
        ({"table": "t"}, Address("clickhouse", "h_d", "d", "t")),
        ({"table": "other.t"}, Address("clickhouse", "h_d", "other", "t")),
        ({"table": "`other`.`t`"}, Address("clickhouse", "h_d", "other", "t")),
        ({"query": "SELECT 1"}, Address("clickhouse", "h_d", None, "query_e004ebd5")),
    ],
)
def test_the_address_needs_no_network(config: dict[str, Any], address: Address) -> None:
    given = {"connection_string": "clickhouse://u:p@h:9000/d", **config}
    declared = ClickhouseSource(**given)
    assert declared.address() == address


@pytest.mark.parametrize(
    "config",
    [
        {"connection_string": "http://h/d"},
        {"table": "t"},
        {"connection_string": "clickhouse://u:hush@h:1234/d", "table": "t"},
        {"connection_string": "http://h/d", "query": " ; "},
        {"connection_string": "http://h/d", "query": "SELECT 1", "final": True},
        {"connection_string": "http://h/d", "table": "t", "order_by_column": ""},
    ],
)
def test_what_does_not_work_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        ClickhouseSource(**config)
    assert "hush" not in str(caught.value)


def test_rows_of_one_change_value_are_neither_skipped_nor_repeated(server: Any) -> None:
    make(server, "id Int64, created_at DateTime64(6, 'UTC')")
    insert(server, "(1, '2026-01-01 00:00:00.000001'), (2, '2026-01-01 00:00:00.000002')")
    flow = reader(server)
    assert ids(flow.read()) == [1, 2]
    insert(server, "(3, '2026-01-01 00:00:00.000002'), (4, '2026-01-01 00:00:00.000003')")
    assert ids(flow.read()) == [3, 4]
    insert(server, "(5, '2026-01-01 00:00:00.000003')")
    assert ids(flow.read()) == [5]
    assert ids(flow.read()) == []


@pytest.mark.parametrize("digits", [0, 3, 6, 9])
def test_change_values_keep_every_digit(server: Any, digits: int) -> None:
    """The original compares seconds: rows later in one second were skipped, or read twice."""
    make(server, f"id Int64, created_at DateTime64({digits}, 'Asia/Tokyo')")
    flow = reader(server)
    for number in range(4):
        fraction = f".{number:0{digits}}" if digits else ""
        insert(server, f"({number}, '2026-01-01 00:00:00{fraction}')")
        assert ids(flow.read()) == [number]
    assert ids(flow.read()) == []


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("DateTime", ["2026-01-01 00:00:00", "2026-01-01 00:00:01"]),
        ("Nullable(DateTime)", ["2026-01-01 00:00:00", "2026-01-01 00:00:01"]),
        ("Date", ["2026-01-01", "2026-01-02"]),
        ("UInt64", ["1", "18446744073709551615"]),
        ("Int128", ["-170141183460469231731687303715884105728", "5"]),
        ("Decimal(20, 5)", ["1.00001", "1.00002"]),
        ("String", ["it's", "it\\s"]),
        ("LowCardinality(String)", ["a", "b\t\n"]),
        ("UUID", ["00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"]),
        ("Enum8('b' = 1, 'a' = 2)", ["b", "a"]),
    ],
)
def test_any_type_that_has_an_order_orders_the_rows(
    server: Any, kind: str, values: list[str]
) -> None:
    make(server, f"id Int64, v {kind}")
    flow, other = reader(server, changeTrackingColumn="v"), reader(server, orderByColumn="v")
    for number, value in enumerate(values):
        insert(server, f"({number}, {client.literal(value)})")
        assert ids(flow.read()) == [number]
        assert ids(other.read()) == [number]
    assert ids(flow.read()) + ids(other.read()) == []


def test_a_changed_row_is_read_again(server: Any) -> None:
    make(server, "id Int64, created_at DateTime, name String")
    insert(server, "(1, '2026-01-01 00:00:00', 'a'), (2, '2026-01-01 00:00:00', 'b')")
    flow = reader(server)
    flow.read()
    insert(server, "(1, '2026-01-02 00:00:00', 'c')")
    assert [row["name"] for row in flow.read()] == ["c"]


def test_without_a_change_column_the_order_alone_tells(server: Any) -> None:
    make(server, "id UInt64, name String")
    insert(server, "(1, 'a'), (2, 'b')")
    flow = reader(server)
    assert ids(flow.read()) == [1, 2]
    insert(server, "(18446744073709551615, 'c')")
    assert ids(flow.read()) == [18446744073709551615]


def test_rows_without_a_change_value_are_read_in_the_first_load_and_told_of_later(
    server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    make(server, "id Int64, created_at Nullable(DateTime)")
    insert(server, "(1, NULL), (2, '2026-01-01 00:00:00')")
    flow = reader(server)
    assert sorted(ids(flow.read())) == [1, 2]
    insert(server, "(3, NULL), (4, '2026-01-01 00:00:01')")
    assert ids(flow.read()) == [4]
    assert "1 rows that came after the first load have no created_at" in caplog.text


def test_rows_without_an_order_value_come_first_of_their_change_value(server: Any) -> None:
    columns = "id Nullable(Int64), created_at DateTime"
    server.command(f"CREATE TABLE t ({columns}) ENGINE = MergeTree ORDER BY created_at")
    insert(server, "(NULL, '2026-01-01 00:00:00'), (1, '2026-01-01 00:00:00')")
    flow = reader(server, readBatchSize=1)
    assert ids(flow.read()) == [None, 1]
    insert(server, "(NULL, '2026-01-01 00:00:01'), (1, '2026-01-01 00:00:01')")
    assert ids(flow.read()) == [None, 1]
    assert ids(flow.read()) == []


def test_the_tick_that_still_runs_is_read_when_it_is_over(server: Any) -> None:
    """Rows of one second in any order of their keys: each once."""
    make(server, "id Int64, created_at DateTime DEFAULT now()")
    insert(server, "(31, now() - 61)")  # else one second of rows may be taken for whole minutes
    flow, found = reader(server), list[int]()
    for number in range(30, 0, -1):
        server.command(f"INSERT INTO t (id) VALUES ({number})")
        found += ids(flow.read())
    deadline = time.monotonic() + 10
    while len(found) < 31:
        assert time.monotonic() < deadline
        time.sleep(0.2)
        found += ids(flow.read())
    assert sorted(found) == list(range(1, 32))


def test_rows_of_the_future_are_read_when_their_time_has_come(server: Any) -> None:
    make(server, "id Int64, created_at DateTime64(3)")
    insert(server, "(1, '2026-01-01 00:00:00'), (2, now64(3) + toIntervalHour(1))")
    flow = reader(server)
    assert ids(flow.read()) == [1]
    come = "ALTER TABLE t UPDATE created_at = now64(3) WHERE id = 2 SETTINGS mutations_sync = 1"
    server.command(come)
    while not (found := ids(flow.read())):  # a whole second waits until the next one
        time.sleep(0.2)
    assert found == [2]


def test_a_big_first_load_is_read_in_ranges_side_by_side(server: Any) -> None:
    make(server, "id Int64, created_at DateTime64(6)")
    made = "toDateTime64('2026-01-01', 6) + number"
    server.command(f"INSERT INTO t SELECT number, {made} FROM numbers(200000)")
    flow = reader(server)
    rows = flow.read(Limit(records=30_000))
    assert sorted(ids(rows)) == list(range(200_000))
    assert flow.spans == [4, 4]


def test_a_first_load_covers_what_its_first_look_saw(server: Any) -> None:
    """What comes while it runs comes after it, wherever it lies."""
    make(server, "id Int64, created_at DateTime64(6)")
    made = "toDateTime64('2026-01-01', 6)"
    server.command(f"INSERT INTO t SELECT number, {made} FROM numbers(100000)")
    flow = reader(server)
    first = flow.step(Limit(records=20_000))
    insert(server, "(5, '2026-01-02 00:00:00'), (99999999, '2026-01-03 00:00:00')")
    rest = [*flow.step(Limit(records=20_000)), *flow.read()]
    assert sorted(ids([*first, *rest])) == sorted([*range(100_000), 5, 99999999])
    assert ids(rest)[-2:] == [5, 99999999]


def test_small_pieces_of_changes_add_up(server: Any) -> None:
    make(server, "id Int64, created_at DateTime")
    flow = reader(server, readBatchSize=7)
    insert(server, "(0, '2025-01-01 00:00:00')")
    assert ids(flow.read()) == [0]
    server.command(
        "INSERT INTO t SELECT number + 1, toDateTime('2026-01-01') + intDiv(number, 3) "
        "FROM numbers(100)"
    )
    assert ids(flow.read()) == list(range(1, 101))
    assert len(flow.spans) > 3


def test_the_parts_of_a_span_are_read_the_same_again(server: Any) -> None:
    make(server, "id Int64, created_at DateTime")
    server.command("INSERT INTO t SELECT number, toDateTime('2026-01-01') FROM numbers(50000)")
    flow = reader(server)
    span = flow.session.plan(flow.at, Limit(records=10_000))
    insert(server, "(7, '2026-01-01 00:00:01')")
    server.command("OPTIMIZE TABLE t FINAL")
    for piece in span.slices:
        once, again = (list(flow.source.batches(piece, frozenset())) for _ in range(2))
        assert pa.Table.from_batches(once) == pa.Table.from_batches(again)


def test_until_bounds_the_read(server: Any) -> None:
    make(server, "id Int64, created_at DateTime")
    insert(server, "(1, '2026-01-01 00:00:00')")
    flow = reader(server)
    flow.read()
    insert(server, "(2, '2026-01-02 00:00:00')")
    end = flow.session.end()
    insert(server, "(3, '2026-01-03 00:00:00')")
    assert ids(flow.read(until=end)) == [2]
    assert flow.at == end
    assert ids(flow.read()) == [3]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("earliest", [1, 2, 3]),
        ("latest", []),
        ("2026-01-02T00:00:00Z", [2, 3]),
        ("2026-01-02T00:00:00.0000005Z", [2, 3]),
        ("2026-01-02T00:00:00.000001001Z", [3]),
        ("2026-01-02T02:00:00.000001+02:00", [2, 3]),
        ("2030-01-01T00:00:00Z", []),
    ],
)
def test_starts_where_it_is_told(server: Any, where: str, expected: list[int]) -> None:
    make(server, "id Int64, created_at DateTime64(6, 'UTC')")
    insert(server, "(1, '2026-01-01 00:00:00'), (2, '2026-01-02 00:00:00.000001')")
    insert(server, "(3, '2026-01-03 00:00:00')")
    flow = reader(server)
    flow.at = flow.session.start(where)
    assert ids(flow.read()) == expected


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"lastReadID": 2, "lastReadTime": "2026-01-02 00:00:00"}, [3, 4]),
        ({"lastReadOrderByValue": 2, "lastReadChangeTime": "2026-01-02T00:00:00.5Z"}, [4]),
        ({"lastReadChangeTime": "2026-01-02T00:00:00Z"}, [3, 4]),
        ({"lastReadOrderByValue": 2}, [3, 4]),
        ({"lastReadID": 3}, [4]),
    ],
)
def test_a_checkpoint_of_the_original_is_gone_on_from(
    server: Any, document: dict[str, Any], expected: list[int]
) -> None:
    make(server, "id Int64, created_at DateTime64(3, 'UTC')")
    insert(server, "(1, '2026-01-01 00:00:00'), (2, '2026-01-02 00:00:00')")
    insert(server, "(3, '2026-01-02 00:00:00.250'), (4, '2026-01-03 00:00:00')")
    flow = reader(server)
    flow.at = flow.session.adopt(document)
    assert ids(flow.read()) == expected
    insert(server, "(5, '2026-01-04 00:00:00')")
    assert ids(flow.read()) == [5]


def test_a_query_with_a_change_column_is_read_like_a_table(server: Any) -> None:
    make(server, "id Int64, created_at DateTime, n Int64")
    insert(server, "(1, '2026-01-01 00:00:00', 5), (2, '2026-01-02 00:00:00', 50)")
    query = "SELECT id AS price_id, created_at, n * 2 AS twice FROM t WHERE n > 9; "
    options = {"orderByColumn": "price_id", "changeTrackingColumn": "created_at"}
    flow = reader(server, table=None, query=query, **options)
    assert [(row["price_id"], row["twice"]) for row in flow.read()] == [(2, 100)]
    insert(server, "(3, '2026-01-03 00:00:00', 10)")
    assert [(row["price_id"], row["twice"]) for row in flow.read()] == [(3, 20)]
    assert flow.session.identity == "query"


def test_a_query_without_one_is_read_as_a_whole_each_time(server: Any) -> None:
    make(server, "id Int64")
    insert(server, "(1), (2)")
    flow = reader(server, query="SELECT id FROM t ORDER BY id")
    assert flow.source.traits.rereads
    assert ids(flow.read()) == [1, 2]
    assert ids(flow.read()) == [1, 2]


def test_final_reads_the_last_row_of_each_key(server: Any) -> None:
    columns = "id Int64, created_at DateTime, name String"
    engine = "ENGINE = ReplacingMergeTree(created_at) ORDER BY id"
    server.command(f"CREATE TABLE t ({columns}) {engine}")
    server.command("SYSTEM STOP MERGES t")
    insert(server, "(1, '2026-01-01 00:00:00', 'a')")
    insert(server, "(1, '2026-01-02 00:00:00', 'b')")
    assert sorted(row["name"] for row in reader(server).read()) == ["a", "b"]
    assert [row["name"] for row in reader(server, final=True).read()] == ["b"]


def test_rows_carry_their_id_and_their_types(server: Any) -> None:
    make(server, "id UUID, created_at DateTime64(3), a Array(Nullable(Int8)), m Map(String, UInt8)")
    insert(server, f"('{'1' * 8}-1111-1111-1111-{'1' * 12}', '2026-01-01', [1, NULL], {{'k': 1}})")
    flow = reader(server)
    piece = flow.session.plan(flow.at, MOST).slices[0]
    (batch,) = flow.source.batches(piece, frozenset({"id"}))
    marked = batch.schema.field(4)
    assert marked.metadata[Note.METADATA] == b"id"
    assert batch.column(4).to_pylist() == batch.column(0).to_pylist()
    assert batch.column(2).to_pylist() == [[1, None]]
    assert batch.column(3).to_pylist() == ['{"k":1}']
    assert flow.source.metadata(piece) == {"table": "t"}


def test_an_empty_part_tells_the_columns(server: Any) -> None:
    make(server, "id Int64, created_at DateTime")
    insert(server, "(1, '2026-01-01 00:00:00')")
    flow = reader(server)
    (piece,) = flow.session.plan(flow.at, MOST).slices
    server.command("TRUNCATE TABLE t")
    (batch,) = flow.source.batches(piece, frozenset())
    assert (batch.num_rows, batch.schema.names) == (0, ["id", "created_at", system_name("place")])


def test_a_look_moves_nothing(server: Any) -> None:
    make(server, "id Int64, created_at DateTime")
    flow = reader(server)
    assert flow.session.peek(flow.at, 2) == {}
    insert(server, "(1, '2026-01-01 00:00:00'), (2, '2026-01-01 00:00:00'), (3, '2026-01-01')")
    seen = flow.session.peek(flow.at, 2)["table"]
    assert seen.column("id").to_pylist() == [1, 2]
    assert ids(flow.read()) == [1, 2, 3]


def test_the_lag_is_told_in_rows_and_by_the_server_s_clock(server: Any) -> None:
    make(server, "id Int64, created_at DateTime64(3)")
    flow = reader(server)
    assert flow.session.lag(flow.at).records == 0
    begun = time.monotonic()
    insert(server, "(1, now64(3) - toIntervalSecond(100)), (2, now64(3) - toIntervalSecond(50))")
    behind = flow.session.lag(flow.at)
    assert behind.records == 2
    assert 100 <= (behind.seconds or 0) < 101 + time.monotonic() - begun
    flow.read()
    assert flow.session.lag(flow.at).records == 0
    assert flow.session.lag(flow.at).seconds == 0


def test_another_table_of_the_same_name_is_another_one(server: Any) -> None:
    make(server, "id Int64")
    insert(server, "(1)")
    flow = reader(server)
    known = flow.session.identity
    span = flow.session.plan(flow.at, MOST)
    server.command("DROP TABLE t SYNC")
    with pytest.raises(PermanentError, match="does not exist"):
        flow.session.end()
    make(server, "id Int64")
    with pytest.raises(TransientError, match="re-created"):
        flow.session.plan(flow.at, MOST)
    with pytest.raises(TransientError, match="re-created"):
        list(flow.source.batches(span.slices[0], frozenset()))
    assert reader(server).session.identity != known


def test_bytes_that_are_no_text_stop_the_read_with_what_to_do(server: Any) -> None:
    make(server, "id Int64, name String")
    insert(server, "(1, unhex('ff'))")
    with pytest.raises(PermanentError, match=r"column name holds bytes(.|\n)*hex\(name\)"):
        reader(server).read()


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"table": "nowhere"}, "does not exist"),
        ({"orderByColumn": "key"}, "has no column key: set orderByColumn"),
        ({"changeTrackingColumn": "at"}, "has no column at, which changeTrackingColumn names"),
        ({"query": "SELECT nope FROM t"}, r"nope.*\(code 47\)"),
        ({"query": "SELEC"}, "code 62"),
    ],
)
def test_mistakes_are_told_at_once(server: Any, config: dict[str, str], words: str) -> None:
    make(server, "id Int64")
    insert(server, "(1)")
    with pytest.raises(PermanentError, match=words):
        reader(server, **config).read()


@pytest.mark.parametrize(
    ("columns", "position", "words"),
    [
        ("id Int64", {"state": "rows", "change": "2026-01-01 00:00:00", "order": "1"}, "order"),
        ("id Int64, created_at DateTime", {"state": "rows", "order": "1"}, "a change column"),
        ("id Int64", {"state": "query", "read_at": "2026-01-01 00:00:00"}, "read as a whole"),
        ("id Int64", {"lsn": "0/1"}, "not a position in a polled table"),
    ],
)
def test_a_position_of_something_else_is_refused(
    server: Any, columns: str, position: dict[str, str], words: str
) -> None:
    make(server, columns)
    with pytest.raises(PermanentError, match=words):
        reader(server).session.plan({"table": json.dumps(position)}, MOST)


def test_memory_stays_flat(server: Any) -> None:
    make(server, "id Int64, name String")
    server.command("INSERT INTO t SELECT number, toString(number) FROM numbers(1000000)")
    flow = reader(server)
    (*_, piece) = flow.session.plan(flow.at, MOST).slices
    assert isinstance(piece, PartSlice)
    before, most = pa.total_allocated_bytes(), 0
    for _ in flow.source.batches(piece, frozenset()):
        most = max(most, pa.total_allocated_bytes() - before)
    assert most < 32 * 1024 * 1024


@pytest.mark.parametrize(
    ("change", "order"),
    [("n", "id"), ("v", "x0"), ("x1", "id"), ("x1", "x0"), ("{x", "a}"), ("{from}", "id")],
)
def test_no_name_of_a_column_stands_for_something_else(
    server: Any, change: str, order: str
) -> None:
    """ClickHouse takes a name for an alias of the same statement first."""
    make(server, f"`{order}` UInt64, `{change}` DateTime64(3)", f"`{order}`")
    query = "SELECT number % 10, now64(3) - 3600 - intDiv(number, 2) FROM numbers(1000)"
    server.command(f"INSERT INTO t {query}")
    names = {"orderByColumn": order, "changeTrackingColumn": change}
    flow = reader(server, readBatchSize=100, **names)
    found = flow.read()
    query = "SELECT number % 10, now64(3) - 3600 + number + 1 FROM numbers(1000)"
    server.command(f"INSERT INTO t {query}")
    found += flow.read()
    assert len(found) == 2_000


@pytest.mark.parametrize("kind", ["Float64", "Nullable(Float32)"])
@pytest.mark.parametrize("limit", [1, 1_000])
def test_a_row_whose_order_value_is_nan_is_read(server: Any, kind: str, limit: int) -> None:
    make(server, f"id {kind}, n UInt32, updated_at DateTime64(6)", order="n")
    rows = ", ".join(
        f"({id_}, {n}, now64(6) - {60 - age})"
        for n, (id_, age) in enumerate([(1, 0), ("nan", 1), ("-inf", 1), ("inf", 2), ("nan", 3)])
    )
    insert(server, rows)
    table = reader(server, changeTrackingColumn="updated_at", orderByColumn="id")
    assert sorted(row["n"] for row in table.read(Limit(limit))) == [0, 1, 2, 3, 4]
    insert(server, "(nan, 5, now64(6) - 30)")
    assert [row["n"] for row in table.read(Limit(limit))] == [5]
    insert(server, "(7, 6, now64(6) - 20), (nan, 7, now64(6) - 20), (nan, 8, now64(6) - 19)")
    assert sorted(row["n"] for row in table.read(Limit(limit))) == [6, 7, 8]


def test_what_changed_at_nan_is_loaded_and_later_told(
    server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """As a row without a change value: it has no place in the order."""
    make(server, "id UInt32, ver Float64")
    insert(server, "(1, 1), (2, nan), (3, 2)")
    table = reader(server, changeTrackingColumn="ver")
    assert sorted(ids(table.read())) == [1, 2, 3]
    insert(server, "(4, nan), (5, 3)")
    with caplog.at_level("WARNING"):
        assert ids(table.read()) == [5]
        assert table.read() == []
    assert "1 rows that came after the first load have no ver" in caplog.text
