"""One shape of the tables of rejected records beside a target, in every database."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from dataflow_assets.connectors.clickhouse.rejected import error_sink as clickhouse
from dataflow_assets.connectors.postgresql.table import checkpoint_tables as postgresql
from dataflow_assets.connectors.trino.rejected import error_sink as trino
from dataflow_assets.contracts import OffsetSlice, Rejection, Target
from dataflow_assets.sdk.record_ids import place_of
from dataflow_assets.sdk.sql_table.rejected import REJECTED, entries_of, rejected_row

TARGET = Target("ns/f", "postgresql:db/public/t", "hash", "t", "topic-1")
COLUMNS = postgresql._TABLES["dataflow_rejected"].strip("( )").split(",")
MADE: dict[str, Iterable[str]] = {
    "clickhouse": clickhouse.BESIDE,
    "postgresql": [text.split()[0].strip('"') for text in COLUMNS],
    "trino": trino.BESIDE,
}


@pytest.mark.parametrize("system", MADE)
def test_a_table_that_is_made_has_the_columns_of_all(system: str) -> None:
    assert {*MADE[system]} - {"replayed_at"} == {*REJECTED.names}


@pytest.mark.parametrize("body", [None, b"", b"text", "ü€😀".encode(), b"\xff\xfe", b"a\0b"])
def test_what_was_sent_is_given_back(body: bytes | None) -> None:
    """No text holds what a system refuses."""
    refused = Rejection(7, "sink", "why \0 \ud800", body, n=2, key=body, rows=3)
    row = rejected_row(TARGET, OffsetSlice("0", 0, 9), refused)
    assert {*row} == {*REJECTED.names} - {"rejected_at"}
    assert not any("\0" in str(value) for value in row.values())
    (entry,) = entries_of([row], None, 9)
    assert (entry.body, entry.key, entry.n, entry.rows, entry.stage) == (body, body, 2, 3, "sink")
    assert (place_of(entry.id), entry.metadata["offset"]) == (("0", 7), 7)


def test_of_a_record_that_is_there_twice_the_latest_reading_counts() -> None:
    row = rejected_row(TARGET, OffsetSlice("0", 0, 9), Rejection(1, "sink", "why", b"{}"))
    rows = [{**row, "reading": reading} for reading in (None, 5, 3)]
    assert [one.reading for one in entries_of(rows, None, 9)] == [5]
