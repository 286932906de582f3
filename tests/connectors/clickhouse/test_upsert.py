"""Rows that replace each other, and deletions, in ReplacingMergeTree tables on a real server."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import devservers
from dataflow_assets.contracts import DELETE, OP, CountsRows, Note
from dataflow_assets.errors import PermanentError
from tests.connectors.clickhouse.driver import Place, start, store

SAMPLE = pa.schema([("id", pa.int64()), ("name", pa.string()), ("updated_at", pa.string())])
UPSERT = {"upsertMode": True, "conflictKey": "id", "autoCreateTable": True}


@pytest.fixture
def place(clickhouse: devservers.ClickHouse, database: str) -> Place:
    return Place(clickhouse.dsn(database))


def made(place: Place, sample: pa.Schema = SAMPLE, **options: Any) -> Place:
    place.options = {**UPSERT, **options}
    session = start(place.sink())
    session.table.create(sample)
    session.close()
    return place


def final(place: Place, columns: str = "id, name") -> list[tuple[Any, ...]]:
    return place.run(f"select {columns} from orders final order by 1")


def engine(place: Place) -> str:
    where = "name = 'orders' and database = currentDatabase()"
    ((found,),) = place.run(f"select engine_full from system.tables where {where}")
    return str(found).partition(" SETTINGS")[0]


def test_the_last_row_of_a_key_stands(place: Place) -> None:
    made(place)
    assert engine(place) == "ReplacingMergeTree ORDER BY (id)"
    session = store(
        place.sink(), [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 1, "name": "c"}]
    )
    store(place.sink(), [{"id": 2}, {"id": 3, "name": "d"}], session=session)
    assert final(place) == [(1, "c"), (2, None), (3, "d")]
    assert isinstance(session.table, CountsRows)
    assert session.table.row_count() is None


def test_the_highest_version_of_a_key_stands(place: Place) -> None:
    """The seed's own example: the version is a time in the records."""
    made(place, replacingVersionColumn="updated_at", tableEngine="ReplacingMergeTree")
    assert engine(place) == "ReplacingMergeTree(updated_at) ORDER BY (id)"
    session = start(place.sink())
    schema = session.table.schema()
    assert schema is not None
    assert schema.field("updated_at").type == pa.timestamp("us", "UTC")
    assert schema.metadata[Note.KEY] == b'["id"]'
    new, old = _at(2), _at(1)
    store(place.sink(), [{"id": 1, "name": "new", "updated_at": new}], session=session)
    store(place.sink(), [{"id": 1, "name": "old", "updated_at": old}], session=session)
    assert final(place) == [(1, "new")]


def _at(day: int) -> Any:
    return pa.scalar(day * 86_400_000_000, pa.timestamp("us", "UTC")).as_py()


@pytest.mark.parametrize(
    ("mode", "made_as", "left"),
    [
        ("hard", "ReplacingMergeTree(_version, _deleted) ORDER BY (id)", [(2, "b"), (3, "d")]),
        ("soft", "ReplacingMergeTree(_version) ORDER BY (id)", [(1, None), (2, "b"), (3, "d")]),
    ],
)
def test_deletions(place: Place, mode: str, made_as: str, left: list[Any]) -> None:
    made(place, deleteMode=mode)
    assert engine(place) == made_as
    session = start(place.sink())
    schema = session.table.schema()
    assert schema is not None
    assert not {"_version", "_deleted"} & set(schema.names)
    rows = [{"id": number, "name": name} for number, name in ((1, "a"), (2, "b"), (3, "c"))]
    store(place.sink(), [*rows, {"id": 3, OP: DELETE}], session=session)
    store(place.sink(), [{"id": 1, OP: DELETE}, {"id": 3, "name": "d"}], session=session)
    assert final(place) == left
    assert dict(place.run("select id, _deleted from orders final")).get(1) == (
        1 if mode == "soft" else None
    )


def test_versions_go_up_after_a_rewind_and_a_restart(place: Place) -> None:
    made(place, deleteMode="hard")
    session = store(place.sink(), [{"id": 1, "name": "a"}, {"id": 1, OP: DELETE}])
    session.restart({"0": 0}, "t1")
    store(place.sink(), [{"id": 1, "name": "again"}], session=session)
    store(place.sink(), [{"id": 1, "name": "later"}], session=start(place.sink()))
    assert final(place) == [(1, "later")]
    versions = [row[0] for row in place.run("select _version from orders order by 1")]
    assert len(versions) == len(set(versions)) == 3


def test_a_deletion_without_delete_mode_is_rejected(place: Place) -> None:
    made(place)
    store(place.sink(), [{"id": 1, "name": "a"}, {"id": 1, OP: DELETE}])
    assert final(place) == [(1, "a")]
    assert [row[3] for row in place.rejected()] == [
        "a delete needs upsertMode: true with deleteMode: hard or soft"
    ]


@pytest.mark.parametrize(
    ("table", "options", "reason"),
    [
        ("MergeTree order by id", {}, r"is of the engine MergeTree, ORDER BY \(id\)"),
        ("ReplacingMergeTree order by name", {}, r"ORDER BY \(name\)"),
        ("ReplacingMergeTree(v) order by id", {"replacingVersionColumn": "w"}, "version is v"),
        ("ReplacingMergeTree(w) order by id", {}, "version w is UInt32; only UInt64"),
        ("ReplacingMergeTree(v) order by id", {"deleteMode": "hard"}, "no column that says what"),
        ("ReplacingMergeTree(v) order by id", {"deleteMode": "soft"}, "_deleted UInt8 of its own"),
    ],
)
def test_tables_that_cannot_replace_rows_are_refused(
    place: Place, table: str, options: dict[str, Any], reason: str
) -> None:
    place.run(
        f"create table orders (id Int64, name String, v UInt64, w UInt32) engine = {table} "
        "settings non_replicated_deduplication_window = 10"
    )
    place.options = {**UPSERT, **options}
    with pytest.raises(PermanentError, match=reason) as caught:
        start(place.sink())
    assert "it needs ENGINE = ReplacingMergeTree" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"upsertMode": True, "rawMode": True}, "rawMode with upsertMode needs conflictKey"),
        ({"deleteMode": "hard"}, "deleteMode requires upsertMode: true"),
        ({"upsertMode": True, "tableEngine": "MergeTree"}, "needs tableEngine ReplacingMergeTree"),
        (
            {"upsertMode": True, "deleteMode": "hard", "replacingVersionColumn": "v"},
            "deleteMode and replacingVersionColumn exclude each other",
        ),
        ({"replacingVersionColumn": "v"}, "requires tableEngine ReplacingMergeTree"),
        ({"conflictKey": ["a", "a"]}, "names a column twice"),
        ({"conflictKey": "a", "orderBy": "b"}, "leave orderBy out"),
    ],
)
def test_contradictions(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Place("http://u:p@h:8123/d").sink(**options)
