"""Expressions and bytes as Flink 2.2 has them, each an answer of its own that is stored here."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dataflow_assets.connectors.kafka import KafkaSource
from dataflow_assets.flow import Flow
from dataflow_assets.languages.sql.engine.bytes.layout import Spelling
from dataflow_assets.languages.sql.engine.bytes.messages import SKIPPED, SqlFormat
from dataflow_assets.languages.sql.engine.bytes.read import FlinkReader
from dataflow_assets.languages.sql.engine.bytes.write import encoder, writer
from dataflow_assets.languages.sql.engine.function import Environment
from dataflow_assets.languages.sql.engine.types import FlinkType
from dataflow_assets.records.record import Record, exact_json, parse
from dataflow_assets.records.step import Context
from tests.languages.sql.engine.flink_answers import (
    CSV,
    IN_BERLIN,
    IN_UTC,
    NUMBERS,
    READ,
    RECORDS,
    REFUSED,
    WRITTEN,
)
from tests.languages.sql.engine.test_bytes import layout
from tests.languages.sql.engine.test_functions import NOW, result
from tests.languages.sql.test_rows import flow, table


@pytest.mark.parametrize(("text", "answer"), IN_UTC)
def test_an_expression(text: str, answer: str | None) -> None:
    assert result(text) == answer


@pytest.mark.parametrize(("text", "answer"), IN_BERLIN)
def test_an_expression_in_a_zone(text: str, answer: str | None) -> None:
    assert result(text, Environment("Europe/Berlin", NOW.now)) == answer


def written(
    kind: str, of: FlinkType, value: object, spelling: Spelling = "Flink's", **given: Any
) -> str:
    """What a query has computed, on its way through the one pass into a topic."""
    write = writer(of, "SQL")
    body = parse(exact_json({"c0": write(value) if write is not None else value}))
    found = encoder(layout(kind, of, **given), spelling=spelling)(body)
    assert found is not None
    return found.decode()


@pytest.mark.parametrize(("kind", "value", "answer"), NUMBERS)
def test_a_number_in_json_and_csv(kind: FlinkType, value: object, answer: str) -> None:
    assert written("json", kind, value) == f'{{"c0":{answer}}}'
    assert written("csv", kind, value) == answer


@pytest.mark.parametrize(("kind", "value", "options", "answer"), WRITTEN)
def test_a_value_in_json(kind: FlinkType, value: object, options: Any, answer: str) -> None:
    assert written("json", kind, value, **options) == f'{{"c0":{answer}}}'


@pytest.mark.parametrize(
    ("kind", "of", "value", "text"),
    [
        ("json", FlinkType("DECIMAL", 20, 2), "1.50", '{"c0":1.50}'),
        ("json", FlinkType("DOUBLE"), 1e16, '{"c0":1E+16}'),
        ("json", FlinkType("VARCHAR", 9), "\U0001f600", '{"c0":"\U0001f600"}'),
        ("csv", FlinkType("DECIMAL", 20, 2), "1.50", "1.50"),
    ],
)
def test_keys_of_earlier_versions_are_still_written(
    kind: str, of: FlinkType, value: Any, text: str
) -> None:
    given = Decimal(value) if of.kind == "DECIMAL" else value
    assert written(kind, of, given, "before") == text


def value_of(kind: str, of: FlinkType, record: bytes, options: Any) -> object:
    """The column of a record; `refused` where the record is rejected."""
    given = layout(kind, of, **options)
    found = SqlFormat(given).texts(pa.array([record], pa.binary()))
    try:
        values = FlinkReader(given)(parse(found.texts.to_pylist()[0]))
    except ValueError:
        return REFUSED
    assert values is not None
    return values[0]


@pytest.mark.parametrize(("kind", "text", "options", "answer"), READ)
def test_a_value_of_json(kind: FlinkType, text: str, options: Any, answer: object) -> None:
    found = value_of("json", kind, f'{{"c0":{text}}}'.encode(), options)
    assert repr(found) == repr(answer)  # which tells -0.0 from 0.0


@pytest.mark.parametrize(("kind", "cell", "options", "answer"), CSV)
def test_a_cell_of_csv(kind: FlinkType, cell: str, options: Any, answer: object) -> None:
    assert repr(value_of("csv", kind, cell.encode(), options)) == repr(answer)


@pytest.mark.parametrize(("record", "ignored", "answer"), RECORDS)
def test_the_rows_of_a_record(
    tmp_path: Path, record: bytes, *, ignored: bool, answer: list[int | None]
) -> None:
    options = {"json_ignore-parse-errors": "true"} if ignored else {}
    insert = "INSERT INTO o SELECT a FROM s"
    given = flow(tmp_path, table("s", "a INT", **options), table("o", "a INT"), insert)
    bodies = read_rows(given, record)
    assert [body["a"] for body in bodies] == answer


@pytest.mark.parametrize("record", [b'{"a":4} x', b'{"a":1}{"a":2}', b'{"a":1}]'])
def test_text_behind_a_record_is_refused_and_not_dropped(record: bytes) -> None:
    """Flink drops it in silence: here only where errors are ignored."""
    form = SqlFormat(layout("json", FlinkType("INT")))
    assert "not JSON" in form.texts(pa.array([record], pa.binary())).refused[0]


def test_a_csv_record_of_nothing_is_left_out_where_errors_are_ignored() -> None:
    form = layout("csv", FlinkType("VARCHAR", 9))
    nothing = pa.array([b""], pa.binary())
    assert SqlFormat(form).texts(nothing).refused == {0: "not CSV: the record is empty"}
    ignoring = replace(form, ignore_errors=True)
    assert SqlFormat(ignoring).texts(nothing).texts.to_pylist() == [SKIPPED]


@pytest.mark.parametrize(
    ("join", "answer"),
    [("CROSS JOIN", [[1, 2], [3, None]]), ("LEFT JOIN", [[1, 2], [3, None]])],
)
def test_a_null_among_rows_is_no_item(tmp_path: Path, join: str, answer: list[Any]) -> None:
    record = b'{"a":[{"x":1,"y":2},null,{"x":3}]}'
    assert unnested(tmp_path, join, record) == answer


def test_nulls_alone_are_as_no_items(tmp_path: Path) -> None:
    assert unnested(tmp_path, "CROSS JOIN", b'{"a":[null]}') == []
    assert unnested(tmp_path, "LEFT JOIN", b'{"a":[null]}') == [[None, None]]


def unnested(tmp_path: Path, join: str, record: bytes) -> list[list[Any]]:
    on = " ON TRUE" if join == "LEFT JOIN" else ""
    given = flow(
        tmp_path,
        table("s", "a ARRAY<ROW<x INT, y INT>>"),
        table("o", "x INT, y INT"),
        f"INSERT INTO o SELECT x, y FROM s {join} UNNEST(a) AS t (x, y){on}",
    )
    return [[body["x"], body["y"]] for body in read_rows(given, record)]


def read_rows(given: Flow, record: bytes) -> list[Any]:
    """The bodies of all rows that come of a record."""
    source = given.source
    assert isinstance(source, KafkaSource)
    form = source.message_format()
    assert form is not None
    texts = form.texts(pa.array([record], pa.binary()))
    assert texts.refused == {}
    apply = given.transformations[0].step.compile(Context(NOW.now))
    found = apply(Record(parse(texts.texts.to_pylist()[0]), {"key": ""}))
    made = found if isinstance(found, list) else [found]
    return [one.body for one in made if one is not None]


@pytest.mark.parametrize(
    ("record", "answer"),
    [
        (
            b'{"id":1,"n":"12","ts":"2024-01-02T03:04:05.67","lz":"2024-01-02T03:04:05.67Z","d":1e2}',
            (1, 12, "2024-01-02 03:04:05.67", "2024-01-02 03:04:05.67Z", "100.00"),
        ),
        (
            b'{"id":2,"n":"abc","ts":"2024-01-02T03:04:05","lz":"2024-01-02T03:04:05Z","d":"1.5"}',
            (2, None, "2024-01-02 03:04:05", "2024-01-02 03:04:05Z", "1.50"),
        ),
        (
            b'{"id":3,"n":1.9,"ts":"2024-01-02 03:04:05","lz":"2024-01-02T03:04:05+02","d":null}',
            (3, 1, None, None, None),
        ),
        (b"not json", None),
        (
            b'{"id":4,"n":5,"ts":"2024-01-02T03:04:05Z","lz":null,"d":0.1}',
            (4, 5, None, None, "0.10"),
        ),
    ],
)
def test_times_of_iso_8601_where_errors_are_ignored(
    tmp_path: Path, record: bytes, answer: tuple[object, ...] | None
) -> None:
    columns = "id BIGINT, n INT, ts TIMESTAMP(3), lz TIMESTAMP_LTZ(3), d DECIMAL(10, 2)"
    lenient = {"json_ignore-parse-errors": "true", "json_timestamp-format_standard": "ISO-8601"}
    read, target = table("s", columns, **lenient), table("o", columns)
    found = read_rows(flow(tmp_path, read, target, "INSERT INTO o SELECT * FROM s"), record)
    texts = [
        tuple(str(one) if isinstance(one, Decimal) else one for one in body.values())
        for body in found
    ]
    assert texts == ([] if answer is None else [answer])
