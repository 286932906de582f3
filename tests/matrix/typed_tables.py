"""A table with a column for each type in one shape, and what stands in it as text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa

from dataflow_assets.connectors.iceberg.column_types import parse_field
from tests.matrix.types import CH, ICE, PG, TRINO
from tests.systems import Config, System


@dataclass(frozen=True)
class Shape:
    """Where a value stands: as JSON, and in each system the type and the way to the value."""

    sent: Callable[[Any], Any]
    missing: Any
    """What has no such element; None: the record has no such key."""
    types: Mapping[str, str]
    paths: Mapping[str, str]
    inside: Callable[[Any], Any]
    """The value in what Python's clients read."""


def _first(value: Any) -> Any:
    return value[0] if value else None


SHAPES = {
    "plain": Shape(
        lambda value: value,
        None,
        {PG: "{}", CH: "Nullable({})", ICE: "{}", TRINO: "{}"},
        {PG: "{}::text", CH: "{}", TRINO: "{}"},
        lambda value: value,
    ),
    "array": Shape(
        lambda value: [value],
        [],
        {PG: "{}[]", CH: "Array(Nullable({}))", ICE: "list<{}>", TRINO: "array({})"},
        {PG: "{}[1]::text", CH: "{}[1]", TRINO: "element_at({}, 1)"},
        _first,
    ),
    "struct": Shape(
        lambda value: {"a": value},
        {},
        {CH: "Tuple(a Nullable({}))", ICE: "struct<a: {}>", TRINO: "row(a {})"},
        {CH: "{}.a", TRINO: "{}.a"},
        lambda value: value and value["a"],
    ),
    "map": Shape(
        lambda value: {"k": value},
        {},
        {
            CH: "Map(String, Nullable({}))",
            ICE: "map<string, {}>",
            TRINO: "map(varchar, {})",
        },
        {CH: "{}['k']", TRINO: "element_at({}, 'k')"},
        lambda value: _first([item for _, item in value or ()]),
    ),
}


Typed = Sequence[tuple[str, Shape]]
"""The columns `c0`, `c1`, ... of a table: the type of a value, and where it stands."""


def make(system: System, config: Config, columns: Typed) -> None:
    """The table of the config: `id`, and these columns."""
    whole = [shape.types[system.type].format(kind) for kind, shape in columns]
    {PG: _postgresql, CH: _clickhouse, ICE: _iceberg, TRINO: _trino}[system.type](
        system, config, whole
    )


def _columns(types: Sequence[str]) -> str:
    return ", ".join(f"c{at} {kind}" for at, kind in enumerate(types))


def _postgresql(system: Any, config: Config, types: Sequence[str]) -> None:
    schema = config["table"].partition(".")[0]
    with psycopg.connect(system.dsn, autocommit=True) as connection:
        connection.execute(f"set search_path to {schema}".encode())
        if any("mood" in kind for kind in types):
            connection.execute("create type mood as enum ('ok')")
            connection.execute("create domain short as text check (length(value) < 3)")
        table = f"create table {config['table']} (id bigint, {_columns(types)})"
        connection.execute(table.encode())


def _clickhouse(system: Any, config: Config, types: Sequence[str]) -> None:
    system.client.command(
        f"CREATE TABLE {config['table']} (id Int64, {_columns(types)}) "
        "ENGINE = MergeTree ORDER BY id SETTINGS non_replicated_deduplication_window = 10000"
    )


def _iceberg(system: Any, config: Config, types: Sequence[str]) -> None:
    columns = [parse_field(f"c{at}", kind) for at, kind in enumerate(types)]
    schema = pa.schema([pa.field("id", pa.int64()), *columns])
    system.catalog.create_table((config["namespace"], config["table"]), schema)


def _trino(system: Any, config: Config, types: Sequence[str]) -> None:
    system.execute(f"CREATE TABLE {config['table']} (id bigint, {_columns(types)})")


def stored(system: System, config: Config, columns: Typed) -> dict[int, list[str | None]]:
    """By `id` the text of each value."""
    rows = {PG: _pg_rows, CH: _ch_rows, ICE: _ice_rows, TRINO: _trino_rows}[system.type]
    return {
        row[0]: [
            None if value is None else plain(kind, value)
            for (kind, _), value in zip(columns, row[1:], strict=True)
        ]
        for row in rows(system, config, columns)
    }


def _paths(system: str, columns: Typed) -> list[str]:
    return [shape.paths[system].format(f"c{at}") for at, (_, shape) in enumerate(columns)]


def _pg_rows(system: Any, config: Config, columns: Typed) -> Any:
    listed = ", ".join(_paths(PG, columns))
    with psycopg.connect(system.dsn) as connection:
        connection.execute("set timezone = 'UTC'")
        return connection.execute(f"select id, {listed} from {config['table']}".encode()).fetchall()


def _ch_rows(system: Any, config: Config, columns: Typed) -> Any:
    listed = ", ".join(f"toString({path})" for path in _paths(CH, columns))
    return system.client.query(f"SELECT id, {listed} FROM {config['table']}").result_rows


def _ice_rows(system: Any, config: Config, columns: Typed) -> Any:
    table = system.catalog.load_table((config["namespace"], config["table"]))
    for row in table.scan().to_arrow().to_pylist():
        id_, *values = row.values()
        shapes = [shape for _, shape in columns]
        yield id_, *(shape.inside(value) for shape, value in zip(shapes, values, strict=True))


def _trino_rows(system: Any, config: Config, columns: Typed) -> Any:
    shown = {"varbinary": "to_hex({})", "real": "CAST(CAST({} AS double) AS varchar)"}
    paths = zip(columns, _paths(TRINO, columns), strict=True)
    texts = [shown.get(kind, "CAST({} AS varchar)").format(path) for (kind, _), path in paths]
    return system.execute(f"SELECT id, {', '.join(texts)} FROM {config['table']}")


def plain(kind: str, value: Any) -> str:
    """What a system shows of a value, in one form."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, date | time | datetime):
        value = value.isoformat(" ") if isinstance(value, datetime) else value.isoformat()
    text = str(value)
    if re.match(r"bool", kind, re.IGNORECASE):
        return {"t": "true", "f": "false"}.get(text, text.lower())
    if re.match(r"real|b?float(16|32)?$", kind, re.IGNORECASE):
        return repr(float(str(np.float32(text))))
    if re.match(r"double|float64", kind, re.IGNORECASE):
        return repr(float(text))
    if re.match(r"numeric|decimal", kind, re.IGNORECASE):
        return f"{Decimal(text).normalize():f}".lower().replace("infinity", "inf")
    if re.match(r"bytea|varbinary", kind):
        return text.removeprefix("\\x").lower()
    if re.match(r"time|datetime", kind, re.IGNORECASE) and kind != "timetz":
        bare = re.sub(r"Z$| UTC$|\+00(:00)?(?=$| BC)", "", re.sub(r"(?<=\d)T(?=\d)", " ", text))
        return re.sub(r"(\.\d*?)0+$", r"\1", bare).removesuffix(".")
    return text
