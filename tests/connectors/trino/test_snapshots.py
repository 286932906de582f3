"""What snapshots prove about a statement: a line without a gap, back to its base or before."""

from __future__ import annotations

from typing import Any, cast

import pytest

from dataflow_assets.connectors.trino.client import TrinoClient
from dataflow_assets.connectors.trino.errors import DENIED, TrinoFailure
from dataflow_assets.connectors.trino.table.commits import TrinoEntry, ruled_out
from dataflow_assets.connectors.trino.table.snapshots import have_stored, reaches, unless_committed
from dataflow_assets.connectors.trino.table.table import TrinoPlace, TrinoTable
from dataflow_assets.errors import TransientError


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
    sql = unless_committed(TrinoTable(TrinoPlace("lake", "shop", "orders"), (), ""), queries)
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
    table = TrinoTable(TrinoPlace("lake", "s", "t"), (), "")
    assert have_stored(cast("TrinoClient", Listing()), table, {"q": "5"}, prove=True) == {"q": True}
    assert have_stored(cast("TrinoClient", Listing()), table, {"r": "5"}, prove=True) == {
        "r": False
    }


BASE, OTHER, LAST = "10", "12", "13"


@pytest.mark.parametrize(
    ("found", "proves"),
    [
        ([(BASE, 5), (OTHER, 6), (LAST, 7)], True),
        ([(BASE, 5), (LAST, 6)], True),
        ([("8", 3), (BASE, 5), (LAST, 6)], True),
        ([(BASE, 5), (None, 6), (LAST, 7)], True),
        ([(BASE, 5), (LAST, 7)], False),
        ([(BASE, 5), (OTHER, 7), (LAST, 8)], False),
        ([(OTHER, 6), (LAST, 7)], False),
        ([(OTHER, 1), (LAST, 2)], False),
        ([(BASE, 5), (OTHER, 6)], False),
        ([(None, 5), (OTHER, 6), (LAST, 7)], False),
        ([(BASE, 0), (OTHER, 0), (LAST, 1)], False),
        ([(BASE, 0), (LAST, 0)], False),
        ([(BASE, 7), (OTHER, 6), (LAST, 5)], False),
        ([], False),
    ],
    ids=[
        "each commit since has a file of others",
        "one commit since",
        "older files",
        "the last commit has removed a file of others",
        "a commit without files: all of it was rewritten, or removed",
        "the first commit since has no files any more",
        "the base has no files any more: is it one that the last one comes from?",
        "the base never had files",
        "the last commit has only removed files",
        "the last commit has removed the files of the base",
        "format version 1 until now",
        "format version 1",
        "the table has gone back",
        "the files cannot be listed",
    ],
)
def test_numbers_of_commits_prove_that_none_is_left(
    found: list[tuple[str | None, int]], *, proves: bool
) -> None:
    others = [TrinoEntry(snapshot, number, None) for snapshot, number in found]
    assert ruled_out(others, "q", BASE, LAST) == proves


@pytest.mark.parametrize("snapshot", ["11", "13", None])
def test_files_of_the_statement_prove_nothing_for_it(snapshot: str | None) -> None:
    """Also where the last commit has removed them."""
    found = [TrinoEntry(BASE, 5, None), TrinoEntry("11", 6, None), TrinoEntry(LAST, 7, None)]
    assert ruled_out(found, "q", BASE, LAST)
    assert ruled_out([*found, TrinoEntry(snapshot, 6, "other")], "q", BASE, LAST)
    assert not ruled_out([*found, TrinoEntry(snapshot, 6, "q")], "q", BASE, LAST)


class OfNessie:
    """A table that shows its last snapshot only; others have added a file after the base."""

    def __init__(self, *heads: str, refused: str = "") -> None:
        self.heads, self.refused = list(heads), refused

    def value(self, _: str) -> str:
        return self.heads.pop(0) if len(self.heads) > 1 else self.heads[0]

    def rows(self, sql: str) -> list[list[Any]]:
        if "$entries" not in sql:
            return [[self.heads[0], None, "other"]] if "$snapshots" in sql else []
        if self.refused:
            raise TrinoFailure("no", self.refused, "INTERNAL_ERROR")
        return [["10", 5, None], ["13", 6, None]]


def decided(table: OfNessie) -> bool | None:
    place = TrinoTable(TrinoPlace("lake", "s", "t"), (), "")
    return have_stored(cast("TrinoClient", table), place, {"q": "10"}, prove=True)["q"]


def test_a_statement_that_files_rule_out_has_failed() -> None:
    assert decided(OfNessie("13")) is False


@pytest.mark.parametrize("error", [DENIED, "GENERIC_INTERNAL_ERROR"])
def test_files_that_cannot_be_listed_tell_nothing(error: str) -> None:
    assert decided(OfNessie("13", refused=error)) is None


def test_an_outage_is_no_answer() -> None:
    with pytest.raises(TrinoFailure):
        decided(OfNessie("13", refused="ICEBERG_CATALOG_ERROR"))


def test_a_table_that_changes_meanwhile_is_looked_at_again() -> None:
    assert decided(OfNessie("12", "13")) is False
    with pytest.raises(TransientError, match="faster than its files can be looked at"):
        decided(OfNessie(*"abcdefgh"))
