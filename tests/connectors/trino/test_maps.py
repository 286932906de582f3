"""Values of maps, and times at a day's end: as plain columns hold them, or rejected."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.memory import Store
from dataflow_assets.connectors.trino import types
from dataflow_assets.connectors.trino.client import literal
from dataflow_assets.connectors.trino.decode import batches
from dataflow_assets.connectors.trino.encode import lines, value, wire
from dataflow_assets.connectors.trino.table.table import Column
from dataflow_assets.connectors.trino.type_names import TrinoType
from dataflow_assets.formats.json import JsonDecoder
from dataflow_assets.manifests.load import load
from dataflow_assets.testing import choose
from tests.connectors.trino.driver import execute
from tests.flows import manifest, messages
from tests.matrix.test_matrix import run

DAY, UUID = "2020-02-29", "9b155af0-0f06-4d56-a294-3d90a9f0a63d"
KINDS: dict[str, tuple[Any, str, list[Any]]] = {
    "map(varchar, integer)": ({"a": 5}, '{"a":5}', [{"a": 1.5}, {"a": 2**31}, {"a": True}]),
    "map(varchar, boolean)": ({"a": True}, '{"a":true}', [{"a": 5}]),
    "map(integer, decimal(5, 2))": ({"7": 1.25}, '{"7":1.25}', [{"7": 1.005}, {"x": 1}]),
    "map(varchar, double)": ({"a": "NaN", "b": None}, '{"a":"NaN","b":null}', [{"a": "x"}]),
    "map(varchar, date)": ({"a": DAY}, f'{{"a":"{DAY}"}}', [{"a": "x"}, {"a": 5}]),
    "map(date, varchar)": ({DAY: "ab"}, f'{{"{DAY}":"ab"}}', [{DAY: 5}, {"x": "ab"}]),
    "map(uuid, varchar)": ({UUID: "x"}, f'{{"{UUID}":"x"}}', [{"x": "x"}]),
    "map(varchar, map(varchar, bigint))": (
        {"a": {"b": 2**53 + 1}, "c": {}},
        '{"a":{"b":9007199254740993},"c":{}}',
        [{"a": {"b": "x"}}, {"a": 5}],
    ),
    "map(varchar, row(n integer, t array(time(6))))": (
        {"a": {"n": 5, "t": ["10:00:00.5", None]}},
        '{"a":{"n":5,"t":["10:00:00.500000",null]}}',
        [{"a": {"n": 2**31, "t": []}}, {"a": {"n": 1, "t": ["23:59:59.9999996"]}}],
    ),
    "array(map(varchar, varchar))": (
        [{"a": "it's \""}, {}, None],
        '[{"a":"it\'s \\""},{},null]',
        [[{"a": 5}], {}],
    ),
}


def decoded(kind: str, cell: Any) -> tuple[pa.RecordBatch, list[str]]:
    schema = pa.schema([types.sink_field("c", kind, nullable=True, comment="")])
    bodies = pa.array([json.dumps({"c": cell}).encode()], pa.binary())
    found = JsonDecoder(schema).decode(bodies, pa.array([0], pa.int64()))
    return found.rows, [one.reason for one in found.rejected]


@pytest.mark.parametrize(
    ("kind", "cell"),
    [
        ("map(varchar, integer)", {"a": 1.5}),
        ("map(varchar, integer)", {"a": True}),
        ("map(varchar, boolean)", {"a": 5}),
        ("map(integer, decimal(5, 2))", {"7": 1.005}),
        ("array(map(varchar, tinyint))", [{"a": 300}]),
        ("map(varchar, date)", {"a": "x"}),
        ("map(date, varchar)", {"x": "y"}),
    ],
)
def test_what_a_cast_would_round_is_rejected_before_a_statement(kind: str, cell: Any) -> None:
    _, reasons = decoded(kind, cell)
    assert len(reasons) == 1
    assert "column c" in reasons[0] or "$.c" in reasons[0]


def test_a_map_travels_as_an_object_of_texts() -> None:
    rows, reasons = decoded("map(integer, decimal(5, 2))", {"7": 1.25, "8": None})
    assert (reasons, lines(rows, ["c"])) == ([], [b'[{"7":"1.25","8":null}]'])
    assert wire(TrinoType.of("map(integer, array(date))")) == "map(varchar, array(varchar))"


def test_a_map_inside_of_others_is_read_with_its_digits_as_numbers() -> None:
    kind = "array(map(varchar, row(n decimal(5, 2), m map(varchar, bigint))))"
    page = [[[[{"a": ["1.50", {"b": 2**53 + 1}]}, None, {"c": None}]]]]
    (batch,) = batches(iter(page), [(Column("c", kind), types.field("c", kind))])
    assert batch.column("c").to_pylist() == [
        ['{"a":{"n":1.50,"m":{"b":9007199254740993}}}', None, '{"c":null}']
    ]


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        ("map(varchar, uuid)", f"MAP(ARRAY['a'], ARRAY[UUID '{UUID}'])", f'{{"a":"{UUID}"}}'),
        ("map(varchar, varbinary)", "MAP(ARRAY['a'], ARRAY[X'00FF'])", '{"a":"AP8="}'),
        (
            "map(integer, time(3))",
            "MAP(ARRAY[5], ARRAY[TIME '10:00:00.5'])",
            '{"5":"10:00:00.500"}',
        ),
        (
            "map(varchar, bigint)",
            "MAP(ARRAY['a'], ARRAY[9007199254740993])",
            '{"a":9007199254740993}',
        ),
    ],
)
def test_maps_that_trino_makes_no_json_of_are_read_too(
    trino: devservers.Trino, kind: str, given: str, expected: str
) -> None:
    rows = execute(
        trino,
        f"SELECT {types.select_expression('c', kind)} FROM (SELECT CAST({given} AS {kind}) AS c)",
    )
    (batch,) = batches(iter([rows]), [(Column("c", kind), types.field("c", kind))])
    assert batch.column("c").to_pylist() == [expected]


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["time(3)", "time(6)", "time(9)", "time(3) with time zone"])
def test_a_time_that_is_rounded_to_the_end_of_its_day_is_no_midnight(
    trino: devservers.Trino, kind: str
) -> None:
    zone = "+01:00" if "zone" in kind else ""
    digits = TrinoType.of(kind).digits
    texts = [f"23:59:59.{'9' * digits}{end}{zone}" for end in ("6", "4", "")]
    tried = ", ".join(f"TRY({value(literal(text), TrinoType.of(kind))})" for text in texts)
    last = f"23:59:59.{'9' * digits}{zone}"
    assert execute(trino, f"SELECT {tried}") == [[None, last, last]]
    inside = value(f"ARRAY[{', '.join(map(literal, texts[1:]))}]", TrinoType.of(f"array({kind})"))
    assert execute(trino, f"SELECT {inside}") == [[[last, last]]]


@pytest.mark.heavy
def test_values_of_maps_are_stored_exactly_or_their_record_is_rejected(
    trino: devservers.Trino, trino_schema: str, tmp_path: Path, engine: SparkSession, store: Store
) -> None:
    made = ", ".join(f"c{at} {kind}" for at, kind in enumerate(KINDS))
    execute(trino, f"CREATE TABLE lake.{trino_schema}.target (id bigint, {made})")
    whole = {f"c{at}": given for at, (given, *_) in enumerate(KINDS.values())}
    unfit = [{f"c{at}": one} for at, (*_, bad) in enumerate(KINDS.values()) for one in bad]
    rows = [{"id": 0, **whole}, {"id": 1}, *({"id": 2, **whole, **one} for one in unfit)]
    store.produce("t", 0, [json.dumps(row).encode() for row in rows])
    config = {"serverURL": trino.uri, "catalog": "lake", "schema": trino_schema, "table": "target"}
    path = manifest(tmp_path, messages(store), ("trino", config))
    with path.open("a", encoding="utf-8") as file:
        file.write("  onRejected: skip\n  maxRejectedPercent: 100\n")
    assert run(choose(load(path), None), engine) == 2
    texts = [re.sub(r"uuid|date(?=,)|time\(6\)", "varchar", kind) for kind in KINDS]
    shown = ", ".join(
        f"json_format(CAST(CAST(c{at} AS {kind}) AS json))" for at, kind in enumerate(texts)
    )
    found = execute(trino, f"SELECT {shown} FROM lake.{trino_schema}.target ORDER BY id")
    assert found == [[text for _, text, _ in KINDS.values()], [None] * len(KINDS)]
