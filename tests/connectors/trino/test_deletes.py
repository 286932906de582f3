"""Rows merged by their key, deletes among them: as if they were applied one by one."""

from __future__ import annotations

import json
import random
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import devservers
from dataflow_assets.connectors.trino import TrinoSink
from dataflow_assets.connectors.trino.client import TrinoClient
from dataflow_assets.connectors.trino.table import statement
from dataflow_assets.connectors.trino.table.table import Column, TrinoPlace, find
from dataflow_assets.contracts import DELETE, INSERT, Run, Target
from dataflow_assets.errors import PermanentError
from tests.connectors.trino.driver import execute

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]

TARGET = Target("ns/deletes", "trino", "h", "t")
MARK = "deleted_at"
COLUMNS = {"id": "bigint", "name": "varchar", "n": "bigint", MARK: "timestamp(6)"}
Row = dict[str, Any]
"""Of the columns that it carries; `op` where it deletes."""


def sink(server: devservers.Trino, schema: str, **more: Any) -> TrinoSink:
    config = {"serverURL": server.uri, "catalog": "lake", "schema": schema, "table": "target"}
    return TrinoSink.model_validate(
        config | {"upsertMode": True, "conflictKey": "id", "batchFlushIntervalSeconds": 0} | more
    )


@pytest.mark.parametrize("mark", [None, MARK])
def test_a_merge_equals_applying_row_by_row(
    mark: str | None, trino: devservers.Trino, trino_schema: str
) -> None:
    dice = random.Random(f"7-{mark}")
    made = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    execute(trino, f"CREATE TABLE lake.{trino_schema}.target ({made})")
    place = TrinoPlace("lake", trino_schema, "target")
    model: dict[int, Row] = {}
    before = datetime.now(UTC).replace(tzinfo=None) - timedelta(seconds=5)
    with closing(TrinoClient(sink(trino, trino_schema), "tests")) as client:
        table = find(client, place)
        assert table is not None
        for count in (1, 8, 40, 40):
            rows = [_row(dice) for _ in range(count)]
            source = statement.Source(table.columns, _inline(table.columns, rows), place)
            client.run(statement.merge(table, source, "true", ("id",), mark))
            for row in rows:
                _apply(model, row, mark)
            found = client.rows(f"SELECT id, name, n, {MARK} FROM {place.quoted_name} ORDER BY id")
            assert [_shown(each) for each in found] == [
                (at, row.get("name"), row.get("n"), row.get(MARK) is not None)
                for at, row in sorted(model.items())
            ]
            marks = [datetime.fromisoformat(each[3]) for each in found if each[3]]
            assert all(before <= one <= before + timedelta(hours=1) for one in marks)
            assert bool(marks) == any(row.get(MARK) for row in model.values())


def _row(dice: random.Random) -> Row:
    key = {"id": dice.randrange(12)}
    if dice.random() < 0.3:
        return key | {"op": DELETE, "name": "of the row that is gone"}
    others = {"name": dice.choice(["a", "it's", None]), "n": dice.randrange(3)}
    return key | {name: value for name, value in others.items() if dice.random() < 0.7}


def _apply(model: dict[int, Row], row: Row, mark: str | None) -> None:
    key = row["id"]
    if row.get("op") != DELETE:
        model[key] = model.get(key, {}) | row | {MARK: None}
    elif mark is None:
        model.pop(key, None)
    elif key in model:
        model[key][mark] = True


def _inline(columns: tuple[Column, ...], rows: list[Row]) -> str:
    """As the writer hands rows over: values as text, the operation, what is absent."""
    lines = []
    for row in rows:
        values = [None if row.get(c.name) is None else str(row[c.name]) for c in columns]
        absent = "".join("01"[c.name not in row] for c in columns)
        lines.append([*values, str(row.get("op", INSERT)), absent])
    return json.dumps(lines)


def _shown(found: list[Any]) -> tuple[Any, ...]:
    number, name, count, marked = found
    return number, name, count, marked is not None


def test_a_mark_needs_a_column_that_holds_a_time(
    trino: devservers.Trino, trino_schema: str
) -> None:
    execute(trino, f"CREATE TABLE lake.{trino_schema}.target (id bigint, name varchar, at date)")
    for column, found in (("gone_at", "does not exist"), ("Name", "is varchar")):
        with pytest.raises(PermanentError, match=rf"must be a timestamp or date; it {found}"):
            sink(trino, trino_schema, softDeleteColumn=column).open(TARGET, Run())
    sink(trino, trino_schema, softDeleteColumn="at").open(TARGET, Run()).close()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"deleteMode": "soft"}, "deleteMode soft requires softDeleteColumn"),
        ({"softDeleteColumn": "ID"}, "softDeleteColumn is a column of conflictKey"),
    ],
)
def test_what_is_refused_with_the_manifest(more: dict[str, Any], said: str) -> None:
    config = {"serverURL": "http://t:1", "catalog": "c", "schema": "s", "table": "t"}
    keyed = config | {"upsertMode": True, "conflictKey": "id"}
    with pytest.raises(ValueError, match=said):
        TrinoSink.model_validate(keyed | more)
