"""Columns of users that have the names of our own: every source to every sink, and nothing is lost.

Whatever name stands beside a table's columns somewhere on the way (in batches, in statements, in
files that wait to be merged) may be that of a column too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dataflow_assets.manifests.load import load
from dataflow_assets.testing import choose
from tests.connectors.clickhouse.system import Clickhouse
from tests.flows import SYSTEMS, made_by, manifest
from tests.matrix.test_matrix import PAIRS, ordered, run, upsert_of
from tests.systems import Change, Row, state

BATCHES = ("_offset", "_n", "_op", "_absent", "_refused", "_unknown", "_at", "_place", "#place")
MESSAGES = ("body", "key", "value", "headers", "timestamp", "metadata", "only", "of", "ordinal")
STATEMENTS = (
    *("_dataflow_deleted", "_dataflow_position", "_dataflow_group", "_dataflow_at", "_dataflow_op"),
    *(
        "_dataflow_id",
        "_dataflow_n",
        "_dataflow_absent",
        "__dataflow_result",
        "__dataflow_result_0",
    ),
    *("#0", "#1", "#n", "#row", "#at", "#value 0", "c0", "c1", "t", "s", "v", "n", "e", "r"),
    *(
        "__dataflow_result_0",
        "_record_timestamp",
        "attempt",
        "chunk",
        "excluded",
        "first",
        "position",
        "file",
        "source",
        "row",
        "at",
        "k",
    ),
    *(
        "partition",
        "offset",
        "operation",
        "table",
        "_file",
        "_pos",
        "_rejected",
        "_record_timestamp",
    ),
)
NAMES = (*BATCHES, *MESSAGES, *STATEMENTS)
UNUSUAL = (
    *('a"b', "a\\b", "a.b", ".b", " a b ", "tab\there", "new\nline", "it's", "`", "%s", "%(id)s"),
    *("{id}", "?", ":x", "$1", "$.c0", "select", "ü", "😀", "e\u0301", "l" * 63, "1", "[", "a/b=c"),
    *("(", "), (", ";--", "<0>", "\x7f", "__op", "NULL", "true", "Case", "CASE"),
)
"""Names of columns that servers allow."""
NOT_IN_MYSQL = {"😀", " a b ", "CASE"}
"""Letters of four bytes, a space at the end, and `Case` once more."""
NUMBERED = range(4)


def _is_held_elsewhere(pair: tuple[str, str]) -> bool:
    return any(name.startswith("memory-") for name in pair)


ENDS = pytest.mark.parametrize(
    ("source_type", "sink_type"), [pair for pair in PAIRS if not _is_held_elsewhere(pair)]
)


@ENDS
def test_columns_of_our_own_names_pass_from_any_source_to_any_sink(
    source_type: str,
    sink_type: str,
    request: pytest.FixtureRequest,
    engine: SparkSession,
    tmp_path: Path,
) -> None:
    check(NAMES, (source_type, sink_type), request, engine, tmp_path)


@ENDS
def test_columns_of_unusual_names_pass_from_any_source_to_any_sink(
    source_type: str,
    sink_type: str,
    request: pytest.FixtureRequest,
    engine: SparkSession,
    tmp_path: Path,
) -> None:
    folded = "trino" in (source_type, sink_type)  # it has small letters alone
    refused = NOT_IN_MYSQL if "mysql" in (source_type, sink_type) else set()
    known = [name for name in UNUSUAL if name not in refused]
    names = [name for name in known if name == name.lower() or not folded]
    check(names, (source_type, sink_type), request, engine, tmp_path)


def check(
    names: Sequence[str],
    ends: tuple[str, str],
    request: pytest.FixtureRequest,
    engine: SparkSession,
    folder: Path,
) -> None:
    """Some changes of rows with these columns arrive as they are."""
    source_type, sink_type = ends
    source, sink = SYSTEMS[source_type](request), SYSTEMS[sink_type](request)
    upsert = upsert_of(sink)
    nulls = source.tells_changes and source.sends_nulls
    made = _changes(names, deletes=upsert is not None and nulls)
    read = source.at("source", {"tombstones": "delete"} if nulls else {})
    source.change(read, made)
    stored = sink.at("sink", {**made_by(sink), **(upsert or {})})
    flow = choose(load(manifest(folder, (source_type, read), (sink_type, stored))), None)
    run(flow, engine)
    whole = upsert is None and source.tells_changes
    wanted = [change.row for change in made] if whole else state(made)
    assert ordered(sink.rows(stored)) == ordered(wanted)


def _changes(names: Sequence[str], *, deletes: bool) -> list[Change]:
    """Rows with the numbers that operations and places have, some of them changed or deleted."""
    found = [Change("insert", _row(number, names, number)) for number in NUMBERED]
    found.append(Change("update", _row(1, names, 2)))
    last: Any = "delete" if deletes else "update"
    return [*found, Change(last, _row(3, names, 3))]


def _row(id_: int, names: Sequence[str], first: int) -> Row:
    return {"id": id_, **{name: (first + at) % 4 for at, name in enumerate(names)}}


@pytest.mark.parametrize("name", ["#0", "__dataflow_result_0", 'x"y'])
@pytest.mark.parametrize("source_type", ["postgresql", "clickhouse", "trino"])
def test_a_table_is_read_in_the_order_of_a_column_of_such_a_name(
    source_type: str,
    name: str,
    request: pytest.FixtureRequest,
    engine: SparkSession,
    tmp_path: Path,
) -> None:
    """As an alias of a statement it would stand for another column, and rows would be passed by."""
    source, sink = SYSTEMS[source_type](request), SYSTEMS["files"](request)
    read = source.at("source", {"orderByColumn": name, "readBatchSize": 2})
    rows = [{"id": number, "a": 9 - number, name: (number * 5) % 7} for number in range(7)]
    source.change(read, [Change("insert", row) for row in rows])
    stored = sink.at("sink", {})
    file = manifest(tmp_path, (source_type, read), ("files", stored), records=2)
    run(choose(load(file), None), engine)
    assert ordered(sink.rows(stored)) == ordered(rows)


def test_columns_that_clickhouse_fills_have_names_that_records_have_not(
    request: pytest.FixtureRequest, engine: SparkSession, tmp_path: Path
) -> None:
    names = ("_version", "_deleted")
    source, sink = SYSTEMS["kafka"](request), SYSTEMS["clickhouse"](request)
    made = _changes(names, deletes=True)
    read = source.at("source", {"tombstones": "delete"})
    source.change(read, made)
    stored = sink.at("sink", {**made_by(sink), **(sink.upsert or {})})
    file = manifest(tmp_path, ("kafka", read), ("clickhouse", stored))
    run(choose(load(file), None), engine)
    declared = sink.declared(stored)
    assert (declared["_version_"], declared["_deleted_"]) == ("UInt64", "UInt8")
    columns = f"SELECT id, _version, _deleted FROM {stored['table']} FINAL ORDER BY id"
    assert isinstance(sink, Clickhouse)
    found = sink.client.query(columns).result_rows
    assert [tuple(row) for row in found] == [tuple(row.values()) for row in state(made)]
