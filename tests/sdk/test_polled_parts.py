"""Parts of polled tables are bounded in rows and in bytes, also those that were recorded before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import chain
from typing import Any

import pytest

import devservers
from dataflow_assets.connectors.clickhouse import client
from dataflow_assets.contracts import Limit, PartSlice, Slice, Span
from dataflow_assets.contracts.capabilities import ReplansParts
from dataflow_assets.errors import TransientError
from dataflow_assets.sdk.polling import PolledSource
from dataflow_assets.sdk.sql_table.positions import Part
from tests.connectors.clickhouse.test_source import reader
from tests.sdk.polled import Polled

MIB = 1024 * 1024
AGO = "now() - interval '1 hour'"
WIDE = "repeat(md5(i::text), CASE WHEN i % 100 < 90 THEN 1 ELSE 1250 END)"  # 32 bytes and 40 KB


@pytest.fixture
def polled(postgresql: devservers.PostgreSQL, schema: str) -> Polled:
    """2,000 rows of 8 MiB in all, most of it in every tenth hundred; an appended target."""
    made = Polled(postgresql.dsn(), schema)
    made.run("CREATE TABLE source (id int PRIMARY KEY, body text, updated_at timestamptz)")
    made.run("CREATE TABLE target (id int, body text, updated_at timestamptz)")
    wide = WIDE.replace("i % 100", "i / 10 % 100")
    made.run(f"INSERT INTO source SELECT i, {wide}, {AGO} FROM generate_series(0, 1999) i")
    made.records, made.bytes = 1_000_000, MIB
    return made


def spans(polled: Polled) -> Iterator[Span]:
    with closing(polled.source.open("x")) as session:
        positions, until = session.start(), session.end()
        while not (span := session.plan(positions, polled.limit, until)).empty:
            yield span
            positions = session.fold(span.upto)


def sizes(source: PolledSource, span: Span) -> Iterator[int]:
    for piece in span.slices:
        assert isinstance(piece, PartSlice)
        yield sum(batch.nbytes for batch in source.batches(piece, frozenset()))


def numbers(polled: Polled) -> list[int]:
    return [int(id_) for (id_,) in polled.rows("id")]


@pytest.mark.parametrize("order", ["load", "changes"])
def test_no_part_of_a_wide_table_is_larger_than_the_limit(polled: Polled, order: str) -> None:
    if order == "changes":
        polled.run("CREATE TABLE later AS SELECT * FROM source; DELETE FROM source")
        polled.run("INSERT INTO source VALUES (-1, '', now() - interval '2 hours')")
        polled.drain()
        polled.run("INSERT INTO source SELECT * FROM later")
    found = list(spans(polled)) if order == "load" else list(polled.spans())
    each = [size for span in found for size in sizes(polled.source, span)]
    assert sum(each) > 7 * MIB
    assert max(each) <= 1.05 * MIB  # Arrow's offsets
    assert len(each) < 40
    assert len([size for size in each if size > MIB / 4]) >= 7


def test_a_part_that_is_within_the_limit_is_cut_no_more(polled: Polled) -> None:
    """Its first rows are wider than the others, so that fewer of them would seem to fit."""
    polled.run("TRUNCATE source")
    row = f"i, repeat('x', 100), {AGO}"
    polled.run(f"INSERT INTO source SELECT {row} FROM generate_series(0, 19999) i")
    with closing(polled.source.open("x")) as session:
        first, *_ = next(spans(polled)).slices
        border = len(_ids(polled, first))
        wide = f"id BETWEEN {border} AND {border + 999}"
        polled.run(f"UPDATE source SET body = repeat('x', 400) WHERE {wide}")
        pieces = [piece for span in spans(polled) for piece in span.slices]
        assert len(_ids(polled, pieces[1])) > 3_000
        for piece in pieces:
            assert isinstance(piece, PartSlice)
            assert isinstance(session, ReplansParts)
            assert session.smaller(piece, polled.limit) == (piece.part,)


def _ids(polled: Polled, piece: Slice) -> list[int]:
    return [
        n for batch in polled.source.batches(piece, frozenset()) for n in batch["id"].to_pylist()
    ]


def test_a_row_that_is_larger_than_the_limit_is_a_part_of_its_own(polled: Polled) -> None:
    polled.bytes = 1_000
    polled.run("DELETE FROM source WHERE id NOT BETWEEN 895 AND 904")
    polled.drain()
    assert numbers(polled) == list(range(895, 905))


def test_compressed_values_count_as_what_they_are(polled: Polled) -> None:
    polled.run("ALTER TABLE source ADD doc jsonb; ALTER TABLE target ADD doc jsonb")
    polled.run("UPDATE source SET body = '', doc = jsonb_build_object('a', repeat('x', 100000))")
    polled.run("DELETE FROM source WHERE id > 40")
    each = [size for span in spans(polled) for size in sizes(polled.source, span)]
    assert sum(each) > 3.5 * MIB
    assert max(each) <= 1.05 * MIB


class TestRecorded:
    """A part that failed is cut into smaller ones when the limits are lower by then."""

    @pytest.fixture
    def failed(self, polled: Polled, monkeypatch: pytest.MonkeyPatch) -> Polled:
        """Two of four parts of 500 rows are committed, the third one is not."""
        polled.options, polled.bytes = {"readBatchSize": 500}, 64 * MIB
        monkeypatch.setenv("DATAFLOW_FAILPOINT", "postgresql.read:raise:3")
        monkeypatch.setenv("DATAFLOW_FAILPOINT_TOKEN", polled.schema)
        with pytest.raises(TransientError, match=r"postgresql\.read"):
            list(polled.spans())
        assert len(numbers(polled)) == 1_000
        return polled

    def test_by_fewer_rows(self, failed: Polled) -> None:
        failed.options = {"readBatchSize": 100}
        span = next(failed.spans())
        assert sum(not piece.empty for piece in span.slices) == 10
        assert numbers(failed) == list(range(2_000))
        assert failed.drain() == 0

    def test_by_fewer_bytes(self, failed: Polled) -> None:
        failed.bytes = MIB
        span = next(failed.spans())
        assert max(sizes(failed.source, span)) <= 64 * MIB  # what is done stays what it was
        new = Span(tuple(piece for piece in span.slices if not piece.empty))
        assert len(new.slices) > 2
        assert max(sizes(failed.source, new)) <= 1.05 * MIB
        assert numbers(failed) == list(range(2_000))

    def test_very_many_small_parts_are_fewer_larger_ones(self, failed: Polled) -> None:
        failed.options = {"readBatchSize": 1}
        span = next(failed.spans())
        assert sum(not piece.empty for piece in span.slices) <= 2 * 65
        assert numbers(failed) == list(range(2_000))

    def test_not_where_they_fit(self, failed: Polled) -> None:
        span = next(failed.spans())
        assert [piece.partition for piece in span.slices] == [f"part-{n}" for n in range(4)]
        assert numbers(failed) == list(range(2_000))

    def test_what_changes_meanwhile_comes_with_the_next_read(self, failed: Polled) -> None:
        failed.run("UPDATE source SET updated_at = clock_timestamp() WHERE id = 1700")
        failed.options = {"readBatchSize": 100}
        failed.drain()
        assert numbers(failed) == list(range(2_000))

    def test_again_after_another_failure(
        self, failed: Polled, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        failed.options = {"readBatchSize": 250}
        monkeypatch.setenv("DATAFLOW_FAILPOINT", "postgresql.read:raise:2")
        monkeypatch.setenv("DATAFLOW_FAILPOINT_TOKEN", failed.schema + "again")
        with pytest.raises(TransientError, match=r"postgresql\.read"):
            list(failed.spans())
        assert len(numbers(failed)) == 1_250
        failed.options = {"readBatchSize": 50}
        span = next(failed.spans())
        assert len({piece.partition for piece in span.slices}) == len(span.slices)
        assert numbers(failed) == list(range(2_000))


class TestClickHouse:
    @pytest.fixture
    def server(self, clickhouse: devservers.ClickHouse, database: str) -> Iterator[Any]:
        connected: Any = client.connect(clickhouse.dsn(database), "tests")
        connected.dsn = clickhouse.dsn(database)
        yield connected
        connected.close()

    def test_parts_are_bounded_in_bytes(self, server: Any) -> None:
        columns = "id Int64, body String, created_at DateTime64(6)"
        server.command(f"CREATE TABLE t ({columns}) ENGINE = MergeTree ORDER BY id")
        server.command(
            "INSERT INTO t SELECT number, repeat('x', intDiv(number, 1000) % 2 ? 4000 : 10), "
            "now64(6) - 3600 FROM numbers(4000)"
        )
        flow, found, limit = reader(server), list[int](), Limit(bytes=MIB)
        end = flow.session.end()
        while flow.session.lags("table", flow.at["table"], end["table"]):
            span = flow.session.plan(flow.at, limit, end)
            found += sizes(flow.source, span)
            flow.at = {"table": flow.session.fold(span.upto)["table"]}
        assert sum(found) > 7 * MIB
        assert max(found) <= 1.05 * MIB

    def test_a_part_is_cut_into_smaller_ones(self, server: Any) -> None:
        columns = "id Int64, created_at DateTime64(6)"
        server.command(f"CREATE TABLE t ({columns}) ENGINE = MergeTree ORDER BY id")
        server.command("INSERT INTO t SELECT number, now64(6) - 3600 FROM numbers(1000)")
        flow = reader(server)
        span = flow.session.plan(flow.at, Limit())
        (piece,) = span.slices
        assert isinstance(piece, PartSlice)
        parts = flow.session.smaller(piece, Limit(records=100))
        read = [
            batch.column("id").to_pylist()
            for part in parts
            for batch in flow.source.read(Part.parse(part), frozenset())
        ]
        assert [len(ids) for ids in read] == [100] * 10
        assert sorted(chain(*read)) == list(range(1000))
