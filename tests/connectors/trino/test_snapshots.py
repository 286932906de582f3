"""What snapshots prove about a statement: a line without a gap, back to its base or before."""

from __future__ import annotations

from typing import Any, cast

import pytest

from dataflow_assets.connectors.trino.client import Client
from dataflow_assets.connectors.trino.table.snapshots import have_stored, reaches, unless_committed
from dataflow_assets.connectors.trino.table.table import Place, Table


@pytest.mark.parametrize(
    ("before", "current", "base", "proves"),
    [
        ({}, None, None, True),
        ({"1": None}, "1", None, True),
        ({"2": "1", "1": None}, "2", None, True),
        ({"2": "1"}, "2", None, False),
        ({"3": "2", "2": "1", "1": None}, "3", "1", True),
        ({"3": "2", "2": "1"}, "3", "1", True),
        ({"3": "2", "1": None}, "3", "1", False),
        ({"1": None, "2": "1"}, "1", "1", True),
        ({"3": None}, "3", "1", False),
        ({}, None, "1", False),
        ({"1": None, "2": "1", "3": "2"}, "1", "3", True),
        ({"3": "2", "4": "3", "5": "4"}, "3", "5", True),
        ({"3": "2", "4": "3", "5": "4", "6": "3"}, "6", "5", True),
        ({"4": "3", "5": "4", "7": "6"}, "7", "5", False),
        ({"1": None, "2": "1", "9": None}, "9", "2", False),
    ],
    ids=[
        "no snapshot yet",
        "the first one since",
        "the first ones since",
        "none before, and the first one has expired",
        "all are there",
        "the base itself has expired",
        "the base is kept for a tag, and one behind it has expired",
        "nobody has committed since",
        "Nessie shows the last one, without the one before it",
        "another table",
        "rolled back",
        "rolled back, and the older ones have expired",
        "rolled back, and others have committed since",
        "rolled back, and one since has expired",
        "replaced, maybe by a copy of its own rows",
    ],
)
def test_a_line_of_snapshots_proves_what_it_shows(
    before: dict[str, str | None], current: str | None, base: str | None, *, proves: bool
) -> None:
    assert reaches(before, current, base) == proves


def test_a_statement_asks_the_table_twice_whatever_is_in_doubt() -> None:
    """Trino limits the stages of a query: one for each doubt would end the flow for good."""
    queries = [f"20200101_000000_{n:05}_aaaaa" for n in range(200)]
    sql = unless_committed(Table(Place("lake", "shop", "orders"), (), ""), queries)
    assert (sql.count("orders$snapshots"), sql.count("orders$files")) == (1, 1)
    assert all(sql.count(query) == 2 for query in queries)


class Listing:
    """A table whose snapshots 5 and 7 were made on 4; its head is 7, and a file is of query `q`."""

    def value(self, _: str) -> int:
        return 7

    def rows(self, sql: str) -> list[list[Any]]:
        line: list[list[Any]] = [["4", None, "other"], ["5", "4", "other"], ["7", "4", None]]
        return line if "$snapshots" in sql else [["q"]]


def test_rows_that_were_added_again_after_a_rollback_are_found_by_their_file() -> None:
    table = Table(Place("lake", "s", "t"), (), "")
    assert have_stored(cast("Client", Listing()), table, {"q": "5"}) == {"q": True}
    assert have_stored(cast("Client", Listing()), table, {"r": "5"}) == {"r": False}
