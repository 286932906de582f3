"""Keys that PostgreSQL finds equal are one key, in every spelling and however rows are cut.

The same rows go through one load at once and through a load each: both must leave the same table.
The loads are those of the writers, in one transaction of each test that is never committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import devservers
from dataflow_assets.connectors.postgresql import PostgresqlSink
from dataflow_assets.connectors.postgresql import client as links
from dataflow_assets.connectors.postgresql.client import Link
from dataflow_assets.connectors.postgresql.sink import load, upsert_staging
from dataflow_assets.connectors.postgresql.sink.upsert_rules import key_columns
from dataflow_assets.connectors.postgresql.table import table as tables
from dataflow_assets.contracts import DELETE, OP, Rejection
from dataflow_assets.errors import PermanentError
from tests.connectors.postgresql.driver import Place, batch
from tests.examples import examples

BORN = datetime(2026, 1, 1, tzinfo=UTC)


def _moments(*micros: int) -> list[datetime]:
    return [BORN + timedelta(microseconds=each) for each in micros]


def _local(*micros: int) -> list[datetime]:
    return [each.replace(tzinfo=None) for each in _moments(*micros)]


# Of each type keys as records carry them: most of them equal to another one, some not valid.
KEYS: dict[str, list[Any]] = {
    "int": [1, 2, -1],
    "bool": [True, False],
    "date": [date(2026, 1, 1), date(2026, 1, 2)],
    "bytea": [b"a", b"A", b""],
    "text": ["Bob", "bob", "bob ", ""],
    "varchar(3)": ["Bob", "bob", "bo", "bo ", "bo   "],
    "char(4)": ["a", "a  ", "A", "a     "],
    "bpchar": ["a", "a  ", " a"],
    "name": ["a" * 63, "a" * 64, "a" * 65, "b"],
    '"char"': ["a", "ab", "b"],
    "citext": ["Bob", "bob", "BOB", "eve"],
    "text COLLATE {nd}": ["Bob", "bob", "BOB", "eve"],
    "varchar(4) COLLATE {nd}": ["Bob", "bob", "BOB ", "bob       "],
    "char(4) COLLATE {nd}": ["Bob", "bob ", "BOB", "eve"],
    "caseless": ["Bob", "bob", "not a bob"],
    "mood": ["glad", "sad", "mad"],
    "uuid": [
        "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
        "a0eebc999c0b4ef8bb6d6bb9bd380a11",
        "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}",
        "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12",
    ],
    "numeric": ["1", "1.0", "1.00", "-0", "0", "10e-1", "NaN", "nan", "Infinity", "inf", "x"],
    "numeric(6,2)": ["1", "1.001", "1.004", "1.005", "-1.005", "-1.01", "1e0", "100000"],
    "numeric(3,-1)": ["1", "4", "5", "14.9", "15", "NaN"],
    "cents": ["1", "1.001", "1.005", "-1"],
    "float8": [0.0, -0.0, 1.0, float("nan"), -float("nan")],
    "float4": [0.0, -0.0, 1.0, 1.0 + 2**-23, float("nan")],
    "timestamptz": _moments(0, 1),
    "timestamptz(3)": _moments(0, 499, 500, 501, 1000, -499, -500, 1500),
    "timestamptz(0)": [*_moments(0, 499_999, 500_000, -500_000), datetime(1999, 1, 1, tzinfo=UTC)],
    "timestamp(1)": [*_local(0, 49_999, 50_000), datetime(1999, 12, 31, 0, 0, 0, 50_000)],  # noqa: DTZ001
    "time(2)": [time(1, 0, 0, 4_999), time(1, 0, 0, 5_000), time(1, 0, 0, 5_001), time(1)],
    "timetz": ["10:00:00+00", "10:00+00", "11:00:00+01"],
    "interval": ["1 day", "24:00:00", "1 mon", "30 days", "PT24H"],
    "inet": ["10.0.0.1", "10.0.0.1/32", "10.0.0.1/24"],
    "cidr": ["10.0.0.0/8", "10/8"],
    "macaddr": ["08:00:2b:01:02:03", "08-00-2B-01-02-03", "08002b010203"],
    "bit(3)": ["101", "b101", "x5", "100"],
    "varbit": ["101", "B101", "0101"],
    "money": ["1", "$1.00", "1.001", "2"],
    "oid": ["1", "01", " 1 ", "2"],
    "pg_lsn": ["0/A", "0/a", "00/0A"],
    "jsonb": ['{"a": 1, "b": 2}', '{"b": 2, "a": 1.0}', "1", "1.0", '"1"'],
    "int[]": ["[1, 2]", "{1,2}", '"{1, 2}"', "[2]"],
    "text[]": ['["a"]', "{a}", "[]", "{A}"],
    "int4range": ["[1,3)", "[1,2]", "(0,3)", "empty", "(1,1)"],
    "point_of": ["(1,a)", "(01,a)", '(1,"a")', "(2,a)"],
    "tsvector": ["a b", "b a", "a"],
}
VERSIONS = (
    *("int", "text", "citext", "mood", "bytea", "inet", "numeric", "numeric(6,2)", "numeric(3,-1)"),
    *("float8", "timestamptz(3)", "timestamptz(0)", "timestamp(1)", "time(2)", "cents"),
)
MakeBench = Callable[..., "Bench"]
MODES: dict[str, dict[str, Any]] = {
    "hard": {"deleteMode": "hard"},
    "soft": {"softDeleteColumn": "gone"},
    "newer": {"upsertStrategy": "ifNewer", "upsertVersionColumn": "v", "deleteMode": "hard"},
}
MADE = """
CREATE SCHEMA extensions; CREATE EXTENSION citext SCHEMA extensions;
CREATE DOMAIN extensions.caseless AS extensions.citext CHECK (VALUE <> 'not a bob');
CREATE DOMAIN extensions.cents AS numeric(6,2) CHECK (VALUE >= 0);
CREATE TYPE extensions.mood AS ENUM ('glad', 'sad');
CREATE TYPE extensions.point_of AS (x int, y text);
CREATE COLLATION extensions.nd
    (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
"""


@dataclass(frozen=True, repr=False)
class Bench:
    """A table in a transaction that is rolled back in the end."""

    link: Link
    sink: PostgresqlSink
    schema: pa.Schema
    place: str

    @property
    def staged(self) -> str:
        """The temporary table."""
        return links.qualified_name(None, upsert_staging._name(self.schema))

    def load(self, records: Sequence[dict[str, Any]], first: int = 0) -> list[Rejection]:
        """One slice of one micro-batch."""
        loader = load.loader(self.sink, self.link, self.schema)
        self.link.execute(f"DELETE FROM {self.staged}")  # as the end of a transaction does
        loader.add(batch(self.schema, records, first), {})
        return loader.flush()

    def after(self, *parts: Sequence[dict[str, Any]]) -> tuple[list[Any], list[int]]:
        """The rows, and the offsets that were refused, of micro-batches one after another."""
        self.link.execute(f"TRUNCATE {self.place}")
        refused: list[int] = []
        first = 0
        for part in parts:
            refused += [each.offset for each in self.load(part, first)]
            first += len(part)
        return self.rows(), sorted(refused)

    def rows(self) -> list[Any]:
        """As text, since spellings count; of a deletion's moment only that there is one."""
        query = f"SELECT k::text, v::text, w::text, gone IS NOT NULL FROM {self.place}"
        return sorted(self.link.execute(query), key=str)

    def using(self, **options: Any) -> Bench:
        """The same table under another manifest."""
        config = self.sink.model_dump(by_alias=True, exclude_unset=True)
        dsn = self.sink.dsn()
        again = PostgresqlSink.model_validate({**config, "connectionString": dsn, **options})
        return replace(self, sink=again)


@pytest.fixture(scope="module")
def opened(postgresql: devservers.PostgreSQL) -> Iterator[Callable[[type[links.TextLink]], Link]]:
    """A session of a kind, inside a transaction; types live where no search path leads."""
    current: list[links.TextLink] = []

    def one(kind: type[links.TextLink]) -> Link:
        if not current or type(current[0]) is not kind:
            close()  # two transactions that make one type wait for each other
            current.append(kind(postgresql.dsn(), "tests"))
            for statement in ("BEGIN", *MADE.split(";")):
                current[0].execute(statement)
        return current[0]

    def close() -> None:
        while current:
            current.pop().close()

    yield one
    close()


@pytest.fixture
def bench(
    postgresql: devservers.PostgreSQL, opened: Callable[[type[links.TextLink]], Link]
) -> Iterator[MakeBench]:
    """Makes a table of these columns with a key, for one test."""
    used: list[Link] = []

    def make(columns: str, key: str = "k") -> Bench:
        place = Place(postgresql.dsn(), "extensions", "keyed", {"upsertMode": True})
        sink = place.sink(conflictKey=key.split(", "))
        name = links.qualified_name(*sink.place())
        for kind in (links.BinaryLink, links.TextLink):
            link = opened(kind)
            link.execute("SAVEPOINT test")
            link.execute(f"CREATE TABLE {name} ({columns}, UNIQUE ({key}))")
            table = tables.find(link, *sink.place())
            assert table is not None
            if isinstance(link, links.BinaryLink) == (table.driver == "binary"):
                used.append(link)
                return Bench(link, sink, table.schema(key_columns(sink, table)), name)
        raise AssertionError

    yield make
    for link in used:
        link.execute("ROLLBACK TO SAVEPOINT test")


def _rows(keys: Sequence[Any], versions: Sequence[Any]) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Inserts, partial updates and deletions."""
    key, version, other = st.sampled_from(keys), st.sampled_from(versions), st.integers(1, 9)
    row = st.one_of(
        st.fixed_dictionaries({"k": key, "v": version, "w": other}),
        st.fixed_dictionaries({"k": key, "v": version}),
        st.fixed_dictionaries({"k": key, "w": other}),
        st.fixed_dictionaries({"k": key, OP: st.just(DELETE)}),
    )
    return st.lists(row, min_size=3, max_size=6)


law = settings(
    derandomize=True,
    deadline=None,
    max_examples=examples(15),
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def _declared(kind: str) -> str:
    own = kind in {"citext", "caseless", "mood", "cents", "point_of"}
    return f"extensions.{kind}" if own else kind.format(nd="extensions.nd")


@pytest.mark.parametrize("kind", KEYS)
def test_a_micro_batch_leaves_what_its_rows_would_one_by_one(bench: MakeBench, kind: str) -> None:
    made = bench(f"k {_declared(kind)}, v int, w int, gone timestamptz")
    benches = [made.using(**options) for options in MODES.values()]

    @law
    @given(_rows(KEYS[kind], range(1, 4)), st.sampled_from(benches))
    def check(rows: list[dict[str, Any]], one: Bench) -> None:
        assert one.after(rows) == one.after(*([row] for row in rows))

    check()


@pytest.mark.parametrize("kind", VERSIONS)
def test_versions_are_compared_as_they_are_stored(bench: MakeBench, kind: str) -> None:
    made = bench(f"k int, v {_declared(kind)}, w int, gone timestamptz").using(**MODES["newer"])

    @law
    @given(_rows([1, 2], [*KEYS[kind], None]))
    def check(rows: list[dict[str, Any]]) -> None:
        # What a later row makes void is not looked at: its version may as well be no valid one.
        assert made.after(rows)[0] == made.after(*([row] for row in rows))[0]

    check()


def test_a_key_of_several_columns_is_equal_where_each_of_them_is(bench: MakeBench) -> None:
    made = bench("k extensions.citext, v numeric(6,2), w int, gone timestamptz", "k, v").using(
        deleteMode="hard"
    )

    @law
    @given(_rows(["a", "A", "b"], ["1", "1.001", "2"]))
    def check(rows: list[dict[str, Any]]) -> None:
        rows = [{"v": "1", **row} for row in rows]
        assert made.after(rows) == made.after(*([row] for row in rows))

    check()


def test_a_row_that_is_deleted_in_another_spelling_stays_deleted(bench: MakeBench) -> None:
    made = bench("k extensions.citext, v int, w int, gone timestamptz").using(deleteMode="hard")
    rows, refused = made.after([{"k": "Bob", "v": 1, "w": 1}, {"k": "bob", OP: DELETE}])
    assert (rows, refused) == ([], [])


def test_the_latest_of_two_partial_rows_wins_in_any_spelling(bench: MakeBench) -> None:
    made = bench("k inet, v int, w int, gone timestamptz")
    first, second = {"k": "10.0.0.1", "v": 1, "w": 1}, {"k": "10.0.0.1/32", "v": 2}
    for rows in ([first, second], [second, first]):
        (row,), _ = made.after(rows)
        assert row[1] == str(rows[-1]["v"])


def test_an_index_that_compares_otherwise_than_its_column_is_refused(bench: MakeBench) -> None:
    made = bench("k text, v int, w int, gone timestamptz")
    made.link.execute(f"CREATE UNIQUE INDEX ON {made.place} (k COLLATE extensions.nd)")
    table = tables.find(made.link, *made.sink.place())
    assert table is not None
    with pytest.raises(PermanentError, match="compares"):
        key_columns(made.sink, table)


def test_an_index_for_patterns_compares_as_its_column_does(bench: MakeBench) -> None:
    made = bench("k text, v int, w int, gone timestamptz")
    made.link.execute(f"CREATE UNIQUE INDEX ON {made.place} (k text_pattern_ops)")
    table = tables.find(made.link, *made.sink.place())
    assert table is not None
    assert key_columns(made.sink, table) == ("k",)


@pytest.mark.parametrize(("kind", "key"), [("int", 1), ("text", "a"), ("numeric(6,2)", "1.5")])
def test_common_keys_are_not_asked_for(
    bench: MakeBench, kind: str, key: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = bench(f"k {kind}, v int, w int, gone timestamptz")

    def equal(*_: Any) -> Any:
        raise AssertionError("the server was asked")

    monkeypatch.setattr(upsert_staging.UpsertStaging, "equal", equal)
    rows, _ = made.after([{"k": key, "v": 1}, {"k": key, "w": 2}])
    assert len(rows) == 1
