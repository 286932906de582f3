"""DEFAULTs of ClickHouse's columns where records have no key, type by type, one batch with both."""

from __future__ import annotations

from typing import Any

import pytest

import devservers
from tests.connectors.clickhouse.driver import Place
from tests.connectors.clickhouse.values import (
    KINDS,
    OTHER,
    SHAPES,
    UUID,
    fill,
    refused,
    sound,
    stored,
    texts,
    written,
)


@pytest.fixture
def place(clickhouse: devservers.ClickHouse, database: str) -> Place:
    return Place(clickhouse.dsn(database))


@pytest.mark.parametrize("name", ["plain", "nullable", "array", "map"])
def test_a_missing_key_has_the_default_and_null_is_null(place: Place, name: str) -> None:
    shape = SHAPES[name]
    given = ", ".join(
        f"c{at} {shape.type(kind.spelled)} "
        f"DEFAULT {shape.literal(f'CAST({kind.default} AS {kind.spelled})')}"
        for at, kind in enumerate(KINDS)
    )
    place.make(f"id UInt32, {given}")
    whole = sound(shape)
    missing = [{k: v for k, v in whole.items() if k != column} for column in whole]
    records = [{"id": 0}, {"id": 1, **whole}]
    records += [{"id": at, **one} for at, one in enumerate(missing, 2)]
    records += [{"id": 100 + at, **whole, f"c{at}": None} for at in range(len(KINDS))]
    fill(place, records)
    found, values = stored(place), written(place, shape, lambda kind: kind.literal)
    defaults = written(place, shape, lambda kind: kind.default)
    assert found[0] == defaults
    assert found[1] == values
    for at in range(len(KINDS)):
        assert found[2 + at] == (*values[:at], defaults[at], *values[at + 1 :])
    nulls = {100 + at for at in range(len(KINDS))}
    if name == "nullable":
        assert [found[number][number - 100] for number in sorted(nulls)] == ["None"] * len(nulls)
    assert set(found) == {0, 1, *range(2, 2 + len(KINDS)), *(nulls if name == "nullable" else ())}


@pytest.mark.parametrize(
    ("declared", "sent", "default"),
    [
        ("JSON DEFAULT '{\"a\":1}'", {"b": 2}, '{"a":1}'),
        ("Nullable(JSON) DEFAULT '{\"a\":1}'", {"b": 2}, '{"a":1}'),
        ("LowCardinality(String) DEFAULT 'none'", "x", "none"),
        ("LowCardinality(Nullable(String)) DEFAULT 'none'", "x", "none"),
        ("LowCardinality(Nullable(FixedString(2))) DEFAULT 'no'", "x", "no"),
        ("Dynamic DEFAULT 'd'", "x", "d"),
        ("Variant(String, UInt8) DEFAULT 5::UInt8", "x", "5"),
        ("Tuple(a UInt8, b Tuple(c IPv4)) DEFAULT (id, tuple(toIPv4('1.1.1.1')))", None, None),
        ("Array(Array(UInt32)) DEFAULT [[id]]", [[5], []], "[[{id}]]"),
        (
            "Map(UInt8, Array(String)) DEFAULT map(1, [toString(id)])",
            {"2": ["y"]},
            "{{1:['{id}']}}",
        ),
        ("UUID DEFAULT toUUID(concat(left('" + UUID + "', 35), toString(id)))", OTHER, None),
        ("String DEFAULT concat('id', toString(id))", "x", "id{id}"),
    ],
)
def test_a_default_is_computed_for_each_row_that_lacks_the_key(
    place: Place, declared: str, sent: Any, default: str | None
) -> None:
    place.make(f"id UInt32, x {declared}")
    value = {"a": 7, "b": {"c": "2.2.2.2"}} if declared.startswith("Tuple") else sent
    session = fill(place, [{"id": 1}, {"id": 2, "x": value}, {"id": 3}])
    fill(place, [{"id": 4}, {"id": 5}], session)
    shown = "x.a, toString(x.b.c)" if declared.startswith("Tuple") else "toString(x)"
    found = {row[0]: row[1:] for row in texts(place, f"select id, {shown} from orders")}
    assert set(found) == {"1", "2", "3", "4", "5"}
    for key in ("1", "3", "4", "5"):
        if declared.startswith("Tuple"):
            assert found[key] == (key, "1.1.1.1")
        elif default is None:
            assert found[key] == (UUID[:-1] + key,)
        else:
            assert found[key] == (default.format(id=key) if "{id}" in default else default,)
    assert found["2"] not in [found[key] for key in ("1", "3", "4", "5")]
    assert place.run("select name from system.tables where name like 'dataflow_default%'") == []


def test_generated_values_differ_from_row_to_row(place: Place) -> None:
    place.make("id UInt32, u UUID DEFAULT generateUUIDv4()")
    fill(place, [*({"id": at} for at in range(20)), {"id": 20, "u": UUID}])
    assert place.run("select count(), uniqExact(u) from orders") == [(21, 21)]


def test_records_without_a_single_key_have_defaults_alone(place: Place) -> None:
    place.make(f"u UUID DEFAULT toUUID(n), n String DEFAULT '{UUID}'", "order by tuple()")
    session = fill(place, [{}, {"n": OTHER}, {}])
    fill(place, [{}], session)
    assert sorted(texts(place, "select u, n from orders")) == sorted(
        [(UUID, UUID), (OTHER, OTHER), (UUID, UUID), (UUID, UUID)]
    )


def test_columns_that_the_server_computes_are_no_keys_of_records(place: Place) -> None:
    more = "m UInt32 MATERIALIZED id + 1, l UInt32 ALIAS id + 2, e UInt8 EPHEMERAL 6"
    place.make(f"id UInt32, {more}, d String DEFAULT toString(e), u UUID DEFAULT '{UUID}'")
    keys = ("m", "l", "e")
    fill(place, [{"id": 0}, {"id": 1, "u": OTHER}, *({"id": 2, key: 1} for key in keys)])
    assert texts(place, "select id, m, l, d, u from orders order by id") == [
        ("0", "1", "2", "6", UUID),
        ("1", "2", "3", "6", OTHER),
    ]
    assert [f"`{key}`" in why for key, why in zip(keys, refused(place).values(), strict=True)] == [
        True,
        True,
        True,
    ]


def test_what_has_no_default_must_be_there(place: Place) -> None:
    place.make("id UInt32, a Array(String), s String, u UUID, m Map(String, UInt8), i Int128")
    whole = {"a": [], "s": "", "u": UUID, "m": {}, "i": 0}
    missing = [{k: v for k, v in whole.items() if k != name} for name in whole]
    null = [{**whole, name: None} for name in whole]
    fill(place, [{"id": at, **one} for at, one in enumerate([whole, *missing, *null])])
    assert place.rows("id") == [(0,)]
    assert set(refused(place)) == set(range(1, 11))


def test_a_deletion_leaves_the_other_columns_to_the_server(place: Place) -> None:
    columns = (
        "id UInt32, u UUID, e Enum8('a' = 1), i Int256, ip IPv4, l Array(UInt8), n Nullable(UUID)"
    )
    place.run(
        f"create table orders ({columns}, _version UInt64, _deleted UInt8) "
        "engine = ReplacingMergeTree(_version, _deleted) order by id "
        "settings non_replicated_deduplication_window = 100"
    )
    place.options = {"upsertMode": True, "deleteMode": "hard"}
    row = {"u": UUID, "e": "a", "i": 5, "ip": "1.1.1.1", "l": [1], "n": None}
    session = fill(place, [{"id": 1, **row}, {"id": 2, **row}])
    fill(place, [None, {"id": 3, **row}], session, keys=[b'{"id":1}', None])
    assert place.run("select id from orders final order by id") == [(2,), (3,)]
    assert session.checkpoint.totals.rejected == 0
